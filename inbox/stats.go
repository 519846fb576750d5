package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/store"
)

// Figures tell what a consumer has yet to handle.
type Figures struct {
	Consumer     string
	Failing      int       // messages that are to be tried again
	FailingSince time.Time // when the first of them failed first, zero if there is none
	Dead         int       // dead letters
	DeadSince    time.Time // when the first of them died
}

// Stats returns the figures of each consumer that has any. It does not read what is handled. Times are those of the
// database's clock.
func Stats(ctx context.Context, pool *pgxpool.Pool) ([]Figures, error) {
	stats := store.InboxStats{}
	if err := query(ctx, pool, &stats); err != nil {
		return nil, err
	}
	all := make([]Figures, len(stats.Consumers))
	for i, c := range stats.Consumers {
		all[i] = Figures{Consumer: c.Consumer, Failing: c.Failing, FailingSince: c.FailingSince, Dead: c.Dead, DeadSince: c.DiedAt}
	}
	return all, nil
}
