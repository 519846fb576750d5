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

// cart is what a checkout is about. It is stored until the checkout has ended: the process that goes on with it after a crash has
// nothing else.
type cart struct {
	Tenant string
	newCheckout
}

// bankRemembers is for how long the bank is trusted to know a key. It promises more.
const bankRemembers = 23 * time.Hour

// newCheckouts returns the operation behind POST /checkouts: reserve, charge, confirm. No transaction is open while the bank is
// asked, so the stock is taken before and the order written after. A crash anywhere in between ends nothing: the client that asks again, or
// the Worker of some process, goes on from the last step on record. If the bank says no the stock is given back.
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

// created is the answer to a checkout.
func created(placed order) idem.Response {
	body, err := json.Marshal(placed)
	if err != nil {
		panic(err) // no field can fail
	}
	return idem.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {fmt.Sprintf("/orders/%d", placed.ID)}},
		Body:   append(body, '\n'),
	}
}

// reject undoes what a checkout has done, and answers with the problem, for good.
func reject(p *idemhttp.Problem) error {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // no field can fail
	}
	return idem.Reject(idem.Response{
		Status: p.Status,
		Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body:   append(body, '\n'),
	})
}
