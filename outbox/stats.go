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

	// Oldest is how long the oldest message has been waiting to be published, 0 if there is none. A
	// delayed message waits from its NotBefore on. Alert on Oldest.
	Oldest time.Duration
	// Waiting counts messages that a relay is about to publish.
	Waiting int
	// Held counts messages that wait because they, or an earlier message of their key, could not be
	// published. Messages of a key with very many messages may count as well.
	Held int
	// HeldKeys counts the keys of the held messages. Each message without a key counts as a key.
	HeldKeys int
	// Dead counts dead letters.
	Dead int

	// Delayed counts messages that are not due yet. No other figure includes them. Messages that are
	// due count as Waiting.
	Delayed int
	// NextDue is the time at which the first delayed message is due, by the clock of the database;
	// zero if there is none.
	NextDue time.Time
}

// MaxCount is the largest count that ReadStats returns. A count of MaxCount means MaxCount or more.
const MaxCount = 10_000

// ReadStats returns the Stats of an outbox. It is fast for any number of messages, unless an old
// snapshot keeps vacuum from removing the rows of published messages.
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
