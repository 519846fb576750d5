package in

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// intake stores messages in a table of the contestant and acknowledges them. The contestant then
// handles them from the table.
type intake struct {
	// store inserts messages. The ids in one call are distinct.
	store func(ctx context.Context, all []broker.Delivery) error
	// left is a query that counts the stored messages that are not handled yet.
	left string
}

// look is the interval between two counts.
const look = 10 * time.Millisecond

// run stores messages until there are no more and all of them are handled. It fetches the next
// batch when at most one batch is left.
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

// await waits until at most most messages are left.
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
