package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/lab/torture/letter"
)

// Call is a request, with the slot of the calling worker.
type Call[Q any] struct {
	Slot int
	What Q
}

// Publication has the letters to publish, in this order.
type Publication struct{ Letters []Sent }

// Sent is a letter to publish. Altered reports that the message differs from what was added to the
// outbox.
type Sent struct {
	letter.Letter
	Altered bool
}

// Refusals has the reason for each letter that was not taken, by its id.
type Refusals map[string]string

// Wish is a request for deliveries, of at most Most letters.
type Wish struct {
	Consumer string
	Most     int
}

// Delivery is a letter with its position in the topic. A position of -1 must not be acknowledged.
type Delivery struct {
	Place  int
	Forged bool // for the history only; consumers ignore it
	Letter letter.Letter
	Count  int // deliveries so far, including this one
}

// Settlement has the acknowledgements and the retries of a consumer.
type Settlement struct {
	Consumer string
	Acked    []int
	Again    map[int]time.Duration // by position: the delay before the next delivery
}

// Client calls the broker. It sends each request once, without retries.
type Client struct {
	address string
	slot    int
	client  http.Client
}

// NewClient returns a client of the broker at address, for the worker in slot.
func NewClient(address string, slot int) *Client {
	const limit = 5 * time.Second
	return &Client{address, slot, http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Publish publishes letters and returns those that the broker refused.
func (c *Client) Publish(ctx context.Context, letters []Sent) (Refusals, error) {
	return post[Refusals](ctx, c, "publish", Publication{letters})
}

// Fetch returns deliveries.
func (c *Client) Fetch(ctx context.Context, q Wish) ([]Delivery, error) {
	return post[[]Delivery](ctx, c, "fetch", q)
}

// Settle acknowledges deliveries and requests others again.
func (c *Client) Settle(ctx context.Context, q Settlement) error {
	_, err := post[bool](ctx, c, "settle", q)
	return err
}

// Standing has counters of the broker.
type Standing struct {
	Taken   int // letters
	Pending int // deliveries that are not acknowledged
}

func (c *Client) Standing(ctx context.Context) (Standing, error) {
	return post[Standing](ctx, c, "standing", struct{}{})
}

func post[R, Q any](ctx context.Context, c *Client, what string, q Q) (reply R, err error) {
	encoded, err := json.Marshal(Call[Q]{c.slot, q})
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
	if resp.StatusCode != http.StatusOK {
		return reply, fmt.Errorf("the broker says %s", resp.Status)
	}
	return reply, json.NewDecoder(resp.Body).Decode(&reply)
}
