package in

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/schema"
)

// Handle calls inbox.Handle, which uses one transaction per message.
var Handle = Contestant{Name: "idem inbox, Handle", Prepare: schema.UpAt, Consume: each(outcomes(
	func(ctx context.Context, pool *pgxpool.Pool, ms []inbox.Message) ([]inbox.Outcome, error) {
		out, err := inbox.Handle(ctx, pool, consumer, ms[0], func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertEffect, ms[0].ID)
			return err
		})
		return []inbox.Outcome{out}, err
	}))}

// Batch calls inbox.Batch, which uses one transaction for up to a thousand messages. Each effect
// needs its own statement.
var Batch = Contestant{Name: "idem inbox, Batch", Prepare: schema.UpAt, Consume: inBatches(outcomes(
	func(ctx context.Context, pool *pgxpool.Pool, ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Batch(ctx, pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
			_, err := tx.Exec(ctx, insertEffect, m.ID)
			return err
		})
	}))}

// Bulk calls inbox.Bulk, with which one statement inserts the effects of all new messages in a
// batch.
var Bulk = Contestant{Name: "idem inbox, Bulk", Prepare: schema.UpAt, Consume: inBatches(outcomes(
	func(ctx context.Context, pool *pgxpool.Pool, ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Bulk(ctx, pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
			ids := make([]string, len(ms))
			for i, m := range ms {
				ids[i] = m.ID
			}
			_, err := tx.Exec(ctx, insertEffects, ids)
			return err
		})
	}))}

const consumer = "billing"

// outcomes returns a handler that acknowledges all deliveries except those with the outcome
// inbox.Retry.
func outcomes(handle func(context.Context, *pgxpool.Pool, []inbox.Message) ([]inbox.Outcome, error)) handler {
	return func(ctx context.Context, place Place, all []broker.Delivery) (done []int64, err error) {
		ms := make([]inbox.Message, len(all))
		for i, d := range all {
			ms[i] = inbox.Message{Source: "orders", ID: d.ID, Payload: d.Payload, Deliveries: d.Deliveries}
		}
		outcomes, err := handle(ctx, place.Pool, ms)
		if err != nil {
			return nil, err
		}
		for i, out := range outcomes {
			if out.State != inbox.Retry {
				done = append(done, all[i].Tag)
			}
		}
		return done, nil
	}
}
