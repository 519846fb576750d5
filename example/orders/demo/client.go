package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// order is the body of a request.
type order struct {
	SKU         string    `json:"sku"`
	Quantity    int       `json:"quantity"`
	AmountCents int       `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Card        string    `json:"card,omitempty"` // the bank's token of the card; empty for an order on account
	ClientTime  time.Time `json:"client_time"`    // time of the call
}

// teapots returns an order on account.
func teapots() order {
	return order{SKU: "teapot", Quantity: 2, AmountCents: 9800, Currency: "EUR"}
}

// answer is the part of a response that the demonstration compares.
type answer struct {
	status   int
	replayed bool
	location string
	body     string
}

func (a answer) String() string {
	return strings.Join(strings.Fields(fmt.Sprint(a.status, " ", a.location, " ", a.body)), " ")
}

// expect returns an error unless a has the expected status, and is a replay if and only if a replay
// is expected.
func (a answer) expect(status int, replayed bool) error {
	if a.status != status || a.replayed != replayed {
		return fmt.Errorf("answered %v, replayed: %t; want %d, replayed: %t", a, a.replayed, status, replayed)
	}
	return nil
}

// sameAs returns an error if the answers differ in another field than replayed.
func (a answer) sameAs(other answer) error {
	if a.replayed = other.replayed; a != other {
		return fmt.Errorf("one answer is %v, and another %v", a, other)
	}
	return nil
}

// customer is an HTTP client that retries with the same key until it has an answer.
type customer struct {
	http    *http.Client
	counter *counter
}

// direct returns a transport that opens a new connection for each attempt. To connect it calls
// dial, or the default dialer if dial is nil.
func direct(dial func(ctx context.Context, network, address string) (net.Conn, error)) http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true, DialContext: dial}
}

// customer returns a client whose attempts are counted.
func (s *stage) customer(network http.RoundTripper) *customer {
	return &customer{counter: &s.counter, http: &http.Client{Transport: &idemclient.Transport{
		Base:       network,
		MinBackoff: 5 * time.Millisecond, // the default of 250 ms would make the acts longer
		Observe:    func(context.Context, idemclient.Attempt) { s.countAttempt() },
	}}}
}

// order places an order, with as many attempts as it takes. All attempts use key.
func (c *customer) order(ctx context.Context, url, key string, o order) (answer, error) {
	path := "/orders"
	if o.Card != "" {
		path = "/checkouts"
	}
	o.ClientTime = time.Now()
	body, err := json.Marshal(o)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(idemclient.WithKey(ctx, key), http.MethodPost, url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer acme-key")
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{
		status:   response.StatusCode,
		replayed: response.Header.Get("Idempotency-Replayed") == "true",
		location: response.Header.Get("Location"),
		body:     string(received),
	}
	c.counter.countAnswer(a)
	return a, nil
}
