package in

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// Plain inserts the effect of each delivery in a transaction of its own. It does not detect
// duplicates.
var Plain = Contestant{Name: "plain transaction", Repeats: true, Consume: each(effects)}

// PlainBatch works like Plain, with up to a thousand deliveries per transaction.
var PlainBatch = Contestant{Name: "plain, 1,000 a transaction", Repeats: true, Consume: inBatches(effects)}

func effects(ctx context.Context, place Place, all []broker.Delivery) ([]int64, error) {
	err := pgx.BeginFunc(ctx, place.Pool, func(tx pgx.Tx) error {
		for _, d := range all {
			if _, err := tx.Exec(ctx, insertEffect, d.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return tagsOf(all), err
}
