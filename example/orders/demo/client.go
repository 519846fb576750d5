package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// order is a request as a client writes it.
type order struct {
	SKU         string    `json:"sku"`
	Quantity    int       `json:"quantity"`
	AmountCents int       `json:"amount_cents"`
	Currency    string    `json:"currency"`
	ClientTime  time.Time `json:"client_time"` // of the attempt
}

func teapots() order {
	return order{SKU: "teapot", Quantity: 2, AmountCents: 9800, Currency: "EUR"}
}

// newKey is made once for each order, before its first attempt, and kept for as long as there is no answer.
func newKey() string { return rand.Text() }

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

const credential = "acme-key"

// post makes one attempt over a connection of its own, which keeps net/http from repeating it on its own account.
func post(ctx context.Context, url, key string, o order) (answer, error) {
	o.ClientTime = time.Now()
	body, err := json.Marshal(o)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+credential)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", `"`+key+`"`)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	return answer{
		status:   response.StatusCode,
		replayed: response.Header.Get("Idempotency-Replayed") == "true",
		location: response.Header.Get("Location"),
		body:     string(received),
	}, err
}
