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

// Reply is what the bank says.
type Reply struct {
	Receipt    string
	Done       bool
	Generation int
}

// ErrDeclined says that the bank does not want to, and never will.
var ErrDeclined = errors.New("the bank declines")

// Client is a customer of the bank. A request is sent once: nobody between it and the bank repeats it.
type Client struct {
	address string
	client  http.Client
}

// NewClient returns a customer of the bank at that address.
func NewClient(address string) *Client {
	const limit = 5 * time.Second
	return &Client{address, http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Book asks for something to be done.
func (c *Client) Book(ctx context.Context, q Request) (receipt string, err error) {
	reply, err := c.post(ctx, "book", q)
	return reply.Receipt, err
}

// Ask asks for the outcome of a key.
func (c *Client) Ask(ctx context.Context, q Request) (Reply, error) { return c.post(ctx, "ask", q) }

// LookUp asks what is in the books about a step.
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
