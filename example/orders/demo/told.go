package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// told is what has come of the orders elsewhere: in the database of fulfilment, and of what that has told the shop in return.
type told struct {
	Shipments, Shipped int // in fulfilment's books, and the orders that they are for
	Messages, Known    int // in the shop's books, taken in by webhook, and the orders that they are for
	Waiting            int // in either outbox
}

// orderIDs are those of the orders that this demo has placed.
const ordersSQL = `SELECT coalesce(array_agg(id), '{}') FROM orders WHERE id > $1`

const fulfilmentSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipments WHERE order_id = ANY ($1)`

const shopSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipped WHERE order_id = ANY ($1)`

// told returns what has come of the orders since the opening, once everything has been told, or nothing more is to be expected.
func (s *stage) told(ctx context.Context, opening books) (t told, err error) {
	for deadline := time.Now().Add(actLimit); ; {
		var ids []int64
		if err := s.pool.QueryRow(ctx, ordersSQL, opening.LastOrder).Scan(&ids); err != nil {
			return t, err
		}
		var waiting int
		rows, _ := s.fulfilmentDB.Query(ctx, fulfilmentSQL, ids)
		_, err1 := pgx.ForEachRow(rows, []any{&t.Shipments, &t.Shipped, &t.Waiting}, func() error { return nil })
		rows, _ = s.pool.Query(ctx, shopSQL, ids)
		_, err2 := pgx.ForEachRow(rows, []any{&t.Messages, &t.Known, &waiting}, func() error { return nil })
		t.Waiting += waiting
		if err := errors.Join(err1, err2); err != nil || t.balance(len(ids)) == nil || time.Now().After(deadline) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// balance returns an error unless each order was shipped once, and the shop was told so once.
func (t told) balance(orders int) error {
	if want := (told{orders, orders, orders, orders, 0}); t != want {
		return fmt.Errorf("not every order was shipped and told of once: %+v, want %+v", t, want)
	}
	return nil
}

func (t told) String() string {
	return fmt.Sprintf("the books of fulfilment: %d shipments, of %d orders, of %d of which it has told the shop", t.Shipments, t.Shipped, t.Messages)
}
