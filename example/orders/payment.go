package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/operation"
)

// payments is the bank, as this service reaches it.
type payments struct {
	url  string
	http *http.Client
}

// paymentLimit is how long the bank may take to answer. After that the outcome is unknown, and it is asked again.
const paymentLimit = 30 * time.Second

func newPayments(url string) *payments {
	return &payments{url, &http.Client{Timeout: paymentLimit}}
}

var errDeclined = errors.New("the card is declined")

// charge returns the id of the charge. It says one of four things: done, declined for good, not sent, or unknown. Whatever is not
// clearly one of the first three is the fourth, and then the call is made again with the same key.
func (p *payments) charge(ctx context.Context, key string, c bank.Charge) (id string, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", operation.Final(operation.NotSent(err)) // and never will be
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", operation.Final(operation.NotSent(err))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	response, err := p.send(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusCreated:
		var made bank.Entry
		if err := json.NewDecoder(response.Body).Decode(&made); err != nil {
			return "", operation.Unknown(err)
		}
		return made.ID, nil
	case http.StatusPaymentRequired:
		return "", operation.Final(errDeclined) // an answer, and it will be the same next time
	}
	return "", operation.Unknown(fmt.Errorf("the bank says %s", response.Status))
}

// send tells a request that has not left from one that has no answer. "dial" in the text of an error does not: net/http sends a request that has a
// key again by itself when an idle connection breaks, and the error is that of the last try.
func (p *payments) send(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := p.http.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err != nil && !connected.Load():
		return nil, operation.NotSent(err)
	case err != nil:
		return nil, operation.Unknown(err)
	}
	return response, nil
}
