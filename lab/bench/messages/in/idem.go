package in

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/schema"
)

// Handle is inbox.Handle: one transaction per message.
func Handle() Contestant {
	return idem("idem inbox, Handle", false, func(ctx context.Context, place Place, ms []inbox.Message) ([]inbox.Outcome, error) {
		out, err := inbox.Handle(ctx, place.Pool, consumer, ms[0], func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertEffect, ms[0].ID)
			return err
		})
		return []inbox.Outcome{out}, err
	})
}

// Batch is inbox.Batch: one transaction for up to a thousand messages, with one statement per
// effect.
func Batch() Contestant {
	return idem("idem inbox, Batch", true, func(ctx context.Context, place Place, ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Batch(ctx, place.Pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
			_, err := tx.Exec(ctx, insertEffect, m.ID)
			return err
		})
	})
}

// Bulk is inbox.Bulk: one statement for the effects of all new messages in a batch.
func Bulk() Contestant {
	return idem("idem inbox, Bulk", true, func(ctx context.Context, place Place, ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Bulk(ctx, place.Pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
			ids := make([]string, len(ms))
			for i, m := range ms {
				ids[i] = m.ID
			}
			_, err := tx.Exec(ctx, insertEffects, ids)
			return err
		})
	})
}

const consumer = "billing"

func idem(name string, together bool, handle func(context.Context, Place, []inbox.Message) ([]inbox.Outcome, error)) Contestant {
	return Contestant{
		Name: name, Prepare: schema.UpAt,
		Consume: func(ctx context.Context, place Place) error {
			max := 1
			if together {
				max = place.Batch
			}
			return consume(ctx, place, max, func(ctx context.Context, all []broker.Delivery) (done []int64, err error) {
				ms := make([]inbox.Message, len(all))
				for i, d := range all {
					ms[i] = inbox.Message{Source: "orders", ID: d.ID, Payload: d.Payload, Deliveries: d.Deliveries}
				}
				outcomes, err := handle(ctx, place, ms)
				if err != nil {
					return nil, err
				}
				for i, out := range outcomes {
					if out.State != inbox.Retry { // rejected, to be redelivered
						done = append(done, all[i].Tag)
					}
				}
				return done, nil
			})
		},
	}
}
