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

// payments is the client of the bank.
type payments struct {
	url  string
	http *http.Client
}

// paymentLimit is the timeout of a call to the bank. After the timeout the outcome is in doubt, and
// the checkout repeats the call.
const paymentLimit = 30 * time.Second

func newPayments(url string) *payments {
	return &payments{url, &http.Client{Timeout: paymentLimit}}
}

var errDeclined = errors.New("the card is declined")

// charge charges a card and returns the id of the charge. The error reports to package operation
// which of four outcomes the call had: success (nil), declined for good (Final), not sent
// (NotSent), or in doubt (Unknown). charge returns Unknown unless one of the other outcomes is
// certain. After Unknown, package operation repeats the call with the same key.
func (p *payments) charge(ctx context.Context, key string, c bank.Charge) (id string, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", operation.Final(operation.NotSent(err)) // a retry could not send it either
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
		return "", operation.Final(errDeclined) // the bank would answer the same to a retry
	}
	return "", operation.Unknown(fmt.Errorf("the bank answered %s", response.Status))
}

// send sends r and distinguishes a request that was not sent from a request without an answer. It
// traces whether net/http got a connection.
//
// The text of an error does not show the difference. After an idle connection breaks, net/http
// repeats a request that has an idempotency key, and returns the error of the last attempt. So an
// error of "dial" does not mean that no earlier attempt was sent.
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
