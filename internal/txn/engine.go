package txn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Engine opens transactions on a pool.
type Engine struct {
	Pool    *pgxpool.Pool // nil if there is a Source without one
	Source  Source        // of connections, if they have another owner than Pool
	Options pgx.TxOptions
	Limits  Limits

	// Prepared are statements that a connection is to know before its first transaction.
	Prepared []*roundtrip.Statement

	// BeginTimeout is how long the first round trip of a transaction may take. Then it is cancelled, and Open answers
	// ErrBlocked, or ErrUnanswered if the server does not say that it was.
	// Zero is for ever.
	BeginTimeout time.Duration

	// Asker is told when a connection was had from the pool, if it is not nil.
	Asker interface{ MarkAsked() }
}

// Limits bound what a transaction does on its own account, beyond the caller's context.
type Limits struct {
	Acquire  time.Duration // until a connection is there: a nested Do on a pool that is used up would wait for itself
	Rollback time.Duration
	Commit   time.Duration // how long the caller waits for a COMMIT under way after the end of its context
}

// DefaultLimits are fit for all.
var DefaultLimits = Limits{Acquire: 30 * time.Second, Rollback: 5 * time.Second, Commit: 5 * time.Second}

// acquire takes a connection from the pool. The wait for one is bounded even if the caller's context is not: a Do inside
// the fn of another Do, on a pool that is used up, would wait for itself.
func (e *Engine) acquire(ctx context.Context) (Lease, error) {
	bounded, cancel := context.WithTimeout(ctx, e.Limits.Acquire)
	defer cancel()
	lease, err := e.lease(bounded)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, &ExhaustedError{Waited: e.Limits.Acquire}
	case err != nil:
		return nil, err
	case e.Asker != nil:
		e.Asker.MarkAsked()
	}
	return lease, nil
}

func (e *Engine) lease(ctx context.Context) (Lease, error) {
	if e.Source != nil {
		return e.Source.Acquire(ctx)
	}
	return e.Pool.Acquire(ctx)
}

var own = []*roundtrip.Statement{begin, commit}

func (e *Engine) statements() []*roundtrip.Statement {
	if e.Prepared == nil {
		return own
	}
	return e.Prepared
}

// WithOwn returns statements together with those of the engine, for Engine.Prepared.
func WithOwn(statements []*roundtrip.Statement) []*roundtrip.Statement {
	return append(append([]*roundtrip.Statement{}, own...), statements...)
}
