package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Stats are figures of an outbox at one time.
type Stats struct {
	ReadAt time.Time // by the clock of the database

	// Oldest is the time since the oldest message could have been published, 0 if there is none.
	// Alert on it.
	Oldest time.Duration
	// Waiting counts messages that a relay is about to publish.
	Waiting int
	// Held counts messages that are held back: they or an earlier message of their key could not be
	// published, or their key has very many messages.
	Held int
	// HeldKeys counts the keys of the held messages. A message without a key counts as one.
	HeldKeys int
	// Dead counts dead letters.
	Dead int

	// Delayed counts messages that are not due yet. No other figure includes them. Messages that
	// are due are Waiting.
	Delayed int
	// NextDue is when the first delayed message is due, by the clock of the database; zero if there
	// is none.
	NextDue time.Time
}

// MaxCount is the limit of the counts of ReadStats: MaxCount means at least that many.
const MaxCount = 10_000

// ReadStats returns the Stats of an outbox. It takes little time for any number of messages, unless
// an old snapshot keeps vacuum from removing the rows of published messages.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	if pool == nil {
		return Stats{}, errNoPool
	}
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	s := db.OutboxStats{Most: MaxCount}
	if err := engine.Query(ctx, inTransaction(&s)...); err != nil {
		return Stats{}, hint(err)
	}
	stats := Stats{
		ReadAt: s.ReadAt, Waiting: min(s.Waiting+s.Due, MaxCount), Held: s.Held, HeldKeys: s.HeldKeys, Dead: s.Dead,
		Delayed: s.Delayed, NextDue: s.NextDue,
	}
	for _, oldest := range []time.Time{s.Oldest, s.OldestHeld, s.Overdue} {
		if !oldest.IsZero() && !oldest.After(s.ReadAt) {
			stats.Oldest = max(stats.Oldest, s.ReadAt.Sub(oldest), 1)
		}
	}
	return stats, nil
}
