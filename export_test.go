package idem

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// WithLimits shortens the bounds that are no options.
func WithLimits(acquire, commit, resolve time.Duration) Option {
	return func(s *settings) {
		s.limits.txn.Acquire, s.limits.txn.Commit, s.limits.resolve = acquire, commit, resolve
	}
}

// WithLock makes a call take another advisory lock than that of its key, or none if lock returns nil.
func WithLock(lock func(scope, key string) *int64) Option {
	return func(s *settings) { s.lock = lock }
}

// RetryAfterWait is what a call that has waited in vain for so long suggests.
func RetryAfterWait(wait time.Duration) time.Duration {
	w := &waiting{wait: wait}
	return w.inProgress().(*InProgressError).RetryAfter
}

// asker counts how often it is told that a connection was had.
type asker int

func (a *asker) MarkAsked() { *a++ }

// AskersTold returns how often a leader's followers are told that it has its connection: by a look for the record, and by a claim.
func AskersTold(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash) (looked, claimed int, err error) {
	c, err := newCall(scope, key, hash, func(pgx.Tx) (Response, error) { return Response{}, nil }, nil)
	if err != nil {
		return 0, 0, err
	}
	c.begin(pool)
	var told asker
	c.execution.engine.Asker = &told
	if _, err := c.execution.ask(ctx); err != nil {
		return 0, 0, err
	}
	looked = int(told)
	if _, err = c.execution.claim(ctx); err == nil {
		c.execution.tx.Close()
	}
	return looked, int(told) - looked, err
}
