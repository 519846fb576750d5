package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deliveries counts the effects of the orders outside the shop's transaction: the shipments of
// fulfilment, and the webhooks that the shop received.
type deliveries struct {
	Shipments, Shipped int // number of shipments, and number of different orders in them
	Webhooks, Reported int // number of handled webhooks, and number of different orders in them
	Waiting            int // messages in the outboxes of the shop and of fulfilment
}

// ordersSQL returns the ids of the orders that this run has placed.
const ordersSQL = `SELECT coalesce(array_agg(id), '{}') FROM orders WHERE id > $1`

const fulfilmentSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipments WHERE order_id = ANY ($1)`

const shopSQL = `
SELECT count(*), count(DISTINCT order_id), (SELECT count(*) FROM idem.outbox)
FROM shipped WHERE order_id = ANY ($1)`

// deliveries waits until each order that is newer than the books opening is shipped and reported to
// the shop, or until actLimit has passed. It returns the counts.
func (s *stage) deliveries(ctx context.Context, opening books) (d deliveries, err error) {
	for deadline := time.Now().Add(actLimit); ; {
		var ids []int64
		if err := s.pool.QueryRow(ctx, ordersSQL, opening.LastOrder).Scan(&ids); err != nil {
			return d, err
		}
		var waiting int
		err1 := s.fulfilmentDB.QueryRow(ctx, fulfilmentSQL, ids).Scan(&d.Shipments, &d.Shipped, &d.Waiting)
		err2 := s.pool.QueryRow(ctx, shopSQL, ids).Scan(&d.Webhooks, &d.Reported, &waiting)
		d.Waiting += waiting
		complete := d.Shipped >= len(ids) && d.Reported >= len(ids) && d.Waiting == 0
		if err := errors.Join(err1, err2); err != nil || complete || time.Now().After(deadline) {
			return d, err
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// balance returns an error unless each order was shipped once and reported to the shop once.
func (d deliveries) balance(orders int) error {
	if want := (deliveries{orders, orders, orders, orders, 0}); d != want {
		return fmt.Errorf("not every order was shipped once and reported to the shop once: %+v, want %+v", d, want)
	}
	return nil
}

func (d deliveries) String() string {
	return fmt.Sprintf("the books of fulfilment: %d shipments, of %d orders, %d reported to the shop", d.Shipments, d.Shipped, d.Webhooks)
}
