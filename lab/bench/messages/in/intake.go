package in

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// intake stores messages in a table and acknowledges them. The contestant handles them from there.
type intake struct {
	store func(ctx context.Context, all []broker.Delivery) error // is given no id twice in one call
	left  string                                                 // a query that counts what is stored and not worked on
}

// look is how often is counted while it waits.
const look = 10 * time.Millisecond

// run stores what comes, and returns when there will be no more and all of it is worked on. It
// takes more when no more than a batch is left.
func (i intake) run(ctx context.Context, place Place) error {
	pool := place.Pool
	place.Workers = 1
	err := consume(ctx, place, place.Batch, func(ctx context.Context, all []broker.Delivery) ([]int64, error) {
		ids := map[string]bool{}
		var distinct []broker.Delivery
		for _, d := range all {
			if !ids[d.ID] {
				ids[d.ID], distinct = true, append(distinct, d)
			}
		}
		if err := i.store(ctx, distinct); err != nil {
			return nil, err
		}
		return tagsOf(all), i.await(ctx, pool, place.Batch)
	})
	if err != nil {
		return err
	}
	return i.await(ctx, pool, 0)
}

// await returns when no more than so many are left.
func (i intake) await(ctx context.Context, pool *pgxpool.Pool, most int) error {
	for {
		var n int
		if err := pool.QueryRow(ctx, i.left).Scan(&n); err != nil || n <= most {
			return err
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
