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

// Call is a request, with the slot of who makes it.
type Call[Q any] struct {
	Slot int
	What Q
}

// Publication is what is to be published, in this order.
type Publication struct{ Letters []Sent }

// Sent is a letter. Altered says that it did not come as it was put into the outbox.
type Sent struct {
	letter.Letter
	Altered bool
}

// Refusals are why letters were not taken, by their id.
type Refusals map[string]string

// Wish is what a consumer asks for.
type Wish struct {
	Consumer string
	Most     int
}

// Delivery is a letter, and its place in its topic: -1 if it is not to be acknowledged.
type Delivery struct {
	Place  int
	Forged bool // only who writes histories looks at it
	Letter letter.Letter
	Count  int // how often it was delivered, this time included
}

// Settlement is what a consumer says of deliveries.
type Settlement struct {
	Consumer string
	Acked    []int
	Again    map[int]time.Duration // after which it is to be delivered again
}

// Client is who calls the broker. A request is sent once: nobody between them repeats it.
type Client struct {
	address string
	slot    int
	client  http.Client
}

// NewClient returns a client of the broker at that address, for the worker in a slot.
func NewClient(address string, slot int) *Client {
	const limit = 5 * time.Second
	return &Client{address, slot, http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Publish publishes letters, all but those that are refused.
func (c *Client) Publish(ctx context.Context, letters []Sent) (Refusals, error) {
	return post[Refusals](ctx, c, "publish", Publication{letters})
}

// Fetch returns deliveries.
func (c *Client) Fetch(ctx context.Context, q Wish) ([]Delivery, error) {
	return post[[]Delivery](ctx, c, "fetch", q)
}

// Settle acknowledges deliveries, and asks for others again.
func (c *Client) Settle(ctx context.Context, q Settlement) error {
	_, err := post[bool](ctx, c, "settle", q)
	return err
}

// Standing is how a broker stands.
type Standing struct {
	Taken   int // letters
	Pending int // deliveries that are not acknowledged
}

// Standing tells how the broker stands.
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
