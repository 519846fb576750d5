package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// told is what has come of the orders elsewhere: in the database of fulfilment, and of what that has told the shop in return.
type told struct {
	Shipments, Shipped int // in fulfilment's books, and the orders that they are for
	Messages, Known    int // in the shop's books, taken in by webhook, and the orders that they are for
	Waiting            int // in either outbox
}

// ordersSQL reads the ids of the orders that this demo has placed.
const ordersSQL = `SELECT coalesce(array_agg(id), '{}') FROM orders WHERE id > $1`

const fulfilmentSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipments WHERE order_id = ANY ($1)`

const shopSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipped WHERE order_id = ANY ($1)`

// told returns what has come of the orders since the opening, once all of them have been told, or it takes too long.
func (s *stage) told(ctx context.Context, opening books) (t told, err error) {
	for deadline := time.Now().Add(actLimit); ; {
		var ids []int64
		if err := s.pool.QueryRow(ctx, ordersSQL, opening.LastOrder).Scan(&ids); err != nil {
			return t, err
		}
		var waiting int
		err1 := s.fulfilmentDB.QueryRow(ctx, fulfilmentSQL, ids).Scan(&t.Shipments, &t.Shipped, &t.Waiting)
		err2 := s.pool.QueryRow(ctx, shopSQL, ids).Scan(&t.Messages, &t.Known, &waiting)
		t.Waiting += waiting
		complete := t.Shipped >= len(ids) && t.Known >= len(ids) && t.Waiting == 0
		if err := errors.Join(err1, err2); err != nil || complete || time.Now().After(deadline) {
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
