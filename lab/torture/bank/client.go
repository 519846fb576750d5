package bank

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Reply is an answer of the bank.
type Reply struct {
	Receipt    string
	Done       bool
	Generation int
}

// ErrDeclined reports that the bank declined the request for good.
var ErrDeclined = errors.New("the bank declines")

// Client calls the bank. It sends each request once, without retries.
type Client struct {
	address string
	client  http.Client
}

// NewClient returns a client of the bank at address.
func NewClient(address string) *Client {
	const limit = 5 * time.Second
	return &Client{address, http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Book books a charge or a refund and returns its receipt. The error is ErrDeclined if the bank
// declined.
func (c *Client) Book(ctx context.Context, q Request) (receipt string, err error) {
	reply, err := c.post(ctx, "book", q)
	return reply.Receipt, err
}

// Ask returns the outcome of a key.
func (c *Client) Ask(ctx context.Context, q Request) (Reply, error) { return c.post(ctx, "ask", q) }

// LookUp returns what the books have about a step of an operation.
func (c *Client) LookUp(ctx context.Context, q Request) (Reply, error) {
	return c.post(ctx, "look-up", q)
}

func (c *Client) post(ctx context.Context, what string, q Request) (reply Reply, err error) {
	encoded, err := json.Marshal(q)
	if err != nil {
		return reply, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/"+what, bytes.NewReader(encoded))
	if err != nil {
		return reply, err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return reply, json.NewDecoder(resp.Body).Decode(&reply)
	case http.StatusPaymentRequired:
		return reply, ErrDeclined
	}
	return reply, fmt.Errorf("the bank says %s", resp.Status)
}
