package demo

import (
	"bytes"
	"cmp"
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

// order is a request as a client writes it.
type order struct {
	SKU         string    `json:"sku"`
	Quantity    int       `json:"quantity"`
	AmountCents int       `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Card        string    `json:"card,omitempty"` // paid by card, if there is one
	credential  string    // of the tenant, if it is not acme
	ClientTime  time.Time `json:"client_time"` // of the call
}

func teapots() order {
	return order{SKU: "teapot", Quantity: 2, AmountCents: 9800, Currency: "EUR"}
}

// answer is what a client remembers of a response.
type answer struct {
	status   int
	replayed bool
	location string
	body     string
}

func (a answer) String() string {
	return strings.Join(strings.Fields(fmt.Sprint(a.status, " ", a.location, " ", a.body)), " ")
}

// expect returns an error unless the answer is the one meant.
func (a answer) expect(status int, replayed bool) error {
	if a.status != status || a.replayed != replayed {
		return fmt.Errorf("answered %v, replayed: %t; want %d, replayed: %t", a, a.replayed, status, replayed)
	}
	return nil
}

// sameAs returns an error if a client that is not interested in replays can tell the two apart.
func (a answer) sameAs(other answer) error {
	if a.replayed = other.replayed; a != other {
		return fmt.Errorf("one answer is %v, and another %v", a, other)
	}
	return nil
}

const acme, globex = "acme-key", "globex-key"

// customer is a client that asks again by itself, kindly and under the same key, until it has an answer.
type customer struct {
	http    *http.Client
	counter *counter
}

// customer returns one whose attempts are counted. Each attempt is made over a connection of its own, to be dialed by dial
// or, if that is nil, as usual.
func (s *stage) customer(dial func(ctx context.Context, network, address string) (net.Conn, error)) *customer {
	return &customer{counter: &s.counter, http: &http.Client{Transport: &idemclient.Transport{
		Base:       &http.Transport{DisableKeepAlives: true, DialContext: dial},
		MinBackoff: 5 * time.Millisecond, // of the usual 250: an act is to be short
		Observe:    func(context.Context, idemclient.Attempt) { s.countAttempt() },
	}}}
}

// order is one call. However many attempts it takes, it has one key and one answer.
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
	request.Header.Set("Authorization", "Bearer "+cmp.Or(o.credential, acme))
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
