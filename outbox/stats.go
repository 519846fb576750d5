package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Stats tell how far the outbox is behind.
type Stats struct {
	ReadAt time.Time // by the clock of the database

	Oldest   time.Duration // for how long the oldest message could have been published, 0 if there is none: what to alert on
	Waiting  int           // messages that are about to be published
	Held     int           // messages that are held back, because they or one before them could not be published, or because their key has very many
	HeldKeys int           // of so many keys; a message without a key is one of its own
	Dead     int           // dead letters

	Delayed int       // messages that are not due yet, which no other figure counts; those that are due wait
	NextDue time.Time // when the first of them is due, by the clock of the database; zero if there is none
}

// MaxCount is how far ReadStats counts: a figure of MaxCount says that there are at least so many.
const MaxCount = 10_000

// ReadStats returns the Stats of an outbox. It takes little time, however much there is, unless an old snapshot keeps the server from removing
// what has left.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	if pool == nil {
		return Stats{}, errNoPool
	}
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	s := db.OutboxStats{Most: MaxCount}
	if err := engine.Query(ctx, begin, &db.LimitRelay{}, &s, commit); err != nil {
		return Stats{}, hint(err)
	}
	f := Stats{ReadAt: s.ReadAt, Waiting: min(s.Waiting+s.Due, MaxCount), Held: s.Held, HeldKeys: s.HeldKeys, Dead: s.Dead, Delayed: s.Delayed, NextDue: s.NextDue}
	for _, oldest := range []time.Time{s.Oldest, s.OldestHeld, s.Overdue} {
		if !oldest.IsZero() && !oldest.After(s.ReadAt) {
			f.Oldest = max(f.Oldest, s.ReadAt.Sub(oldest), 1)
		}
	}
	return f, nil
}
