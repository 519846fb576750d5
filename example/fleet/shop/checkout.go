package shop

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

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/operation"
)

// newCheckout returns the operation that charges a card and then places the order.
func newCheckout(bankURL string) *operation.Definition[Order] {
	client := &http.Client{Timeout: 10 * time.Second}
	keyed := operation.Keyed(23*time.Hour).WithBackoff(20*time.Millisecond, time.Second)
	return operation.Define("checkout", func(op *operation.Op, in Order) (idem.Response, error) {
		charge, err := operation.Call(op, "charge", keyed, func(ctx context.Context, key string) (string, error) {
			return pay(ctx, client, bankURL, key, bank.Charge{Customer: in.Tenant, Card: in.Card, AmountCents: in.Cents, Currency: "EUR", Reference: in.Request})
		})
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Tx(op, "place", func(tx pgx.Tx) (struct{}, error) {
			return struct{}{}, place(op.Context(), tx, op.ID(), in, charge)
		})
		return idem.Response{Status: http.StatusCreated, Body: []byte(op.ID())}, err
	})
}

// pay charges a card. Its error tells package operation whether nothing was sent or the outcome is
// in doubt.
func pay(ctx context.Context, client *http.Client, url, key string, c bank.Charge) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", operation.Final(operation.NotSent(err))
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", operation.Final(operation.NotSent(err))
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := client.Do(r)
	if err != nil && !connected.Load() {
		return "", operation.NotSent(err)
	}
	if err != nil {
		return "", operation.Unknown(err)
	}
	defer response.Body.Close()
	var made bank.Entry
	if response.StatusCode != http.StatusCreated {
		return "", operation.Unknown(fmt.Errorf("shop: the bank says %s", response.Status))
	}
	if err := errors.Join(json.NewDecoder(response.Body).Decode(&made)); err != nil {
		return "", operation.Unknown(err)
	}
	return made.ID, nil
}
