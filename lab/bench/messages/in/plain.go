package in

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// Plain makes the effect of each delivery in its own transaction, without detecting duplicates.
func Plain() Contestant {
	return Contestant{
		Name: "plain transaction", Repeats: true,
		Consume: func(ctx context.Context, place Place) error {
			return consume(ctx, place, 1, func(ctx context.Context, all []broker.Delivery) ([]int64, error) { return effects(ctx, place, all) })
		},
	}
}

// PlainBatch is Plain with up to a thousand deliveries per transaction.
func PlainBatch() Contestant {
	return Contestant{
		Name: "plain, 1,000 a transaction", Repeats: true,
		Consume: func(ctx context.Context, place Place) error {
			return consume(ctx, place, place.Batch, func(ctx context.Context, all []broker.Delivery) ([]int64, error) { return effects(ctx, place, all) })
		},
	}
}

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
