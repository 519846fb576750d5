package bank

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Client sends charges to a bank.
type Client struct {
	url    string
	worker string
	http   *http.Client
}

// NewClient returns a client that names worker in its requests and keeps its connections open.
func NewClient(url string, worker int) *Client {
	return &Client{url: url + "/charge", worker: strconv.Itoa(worker), http: &http.Client{
		Transport: &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000},
	}}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Charge makes a charge under a key and returns its name.
func (c *Client) Charge(ctx context.Context, order, key string) (charge string, err error) {
	body, err := json.Marshal(Request{Order: order, Amount: 4900})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Worker", c.worker)
	res, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("bank: %s: %s", res.Status, answer)
	}
	var receipt Receipt
	err = json.Unmarshal(answer, &receipt)
	return receipt.Charge, err
}
