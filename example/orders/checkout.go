package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
)

// cart is the input of a checkout. Package operation stores it until the checkout has ended. A
// process that resumes the checkout after a crash has no other input.
type cart struct {
	Tenant string
	newCheckout
}

// bankRemembers is how long the checkout trusts the bank to recognize a key. It is shorter than the
// time for which the bank promises to recognize keys.
const bankRemembers = 23 * time.Hour

// newCheckouts returns the operation behind POST /checkouts, with the steps reserve, charge and
// confirm.
//
// No transaction is open during the call to the bank. The stock is therefore reserved before the
// call, and the order is written after it. A crash in between does not end the checkout: a retry of
// the client, or the Worker of another process, resumes it after the last recorded step. If the
// bank declines the card, the reservation is undone.
func newCheckouts(payments *payments) *operation.Definition[cart] {
	return operation.Define("checkout", func(op *operation.Op, in cart) (idem.Response, error) {
		err := operation.Exec(op, "reserve", func(tx pgx.Tx) error {
			return takeFromStock(op.Context(), tx, in.Tenant, in.newOrder)
		}, operation.UndoTx(func(tx pgx.Tx, _ operation.None) error {
			return giveBack(op.Context(), tx, in.Tenant, in.newOrder)
		}))
		if errors.Is(err, errOutOfStock) {
			return idem.Response{}, reject(outOfStock(in.newOrder))
		}
		if err != nil {
			return idem.Response{}, err
		}
		chargeID, err := operation.Call(op, "charge", operation.Keyed(bankRemembers), func(ctx context.Context, key string) (string, error) {
			return payments.charge(ctx, key, bank.Charge{
				Customer: in.Tenant, Card: in.Card, AmountCents: in.AmountCents, Currency: in.Currency, Reference: op.ID(),
			})
		})
		if errors.Is(err, errDeclined) {
			return idem.Response{}, reject(cardDeclined())
		}
		if err != nil {
			return idem.Response{}, err
		}
		placed, err := operation.Tx(op, "confirm", func(tx pgx.Tx) (order, error) {
			return insertOrder(op.Context(), tx, in.Tenant, op.ID(), in.newOrder, chargeID)
		})
		if err != nil {
			return idem.Response{}, err
		}
		return created(placed), nil
	})
}

// created returns the response to a successful checkout.
func created(placed order) idem.Response {
	body, err := json.Marshal(placed)
	if err != nil {
		panic(err) // cannot happen: every field can be encoded as JSON
	}
	return idem.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {fmt.Sprintf("/orders/%d", placed.ID)}},
		Body:   append(body, '\n'),
	}
}

// reject returns the error that ends a checkout for good: package operation undoes the completed
// steps, and the client receives p.
func reject(p *idemhttp.Problem) error {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // cannot happen: every field can be encoded as JSON
	}
	return idem.Reject(idem.Response{
		Status: p.Status,
		Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body:   append(body, '\n'),
	})
}
