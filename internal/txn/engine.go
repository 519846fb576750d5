package txn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Engine opens transactions on connections of a pool or of a Source.
type Engine struct {
	Pool    *pgxpool.Pool // nil if Source has no pool
	Source  Source        // lends connections of another owner, such as database/sql; nil to take them from Pool
	Options pgx.TxOptions
	Limits  Limits

	// Prepared are the statements that a connection prepares before its first transaction.
	Prepared []*roundtrip.Statement

	// BeginTimeout limits the first round trip of a transaction. After that time the statements are
	// canceled, and Open returns ErrBlocked, or ErrUnanswered if the server does not confirm the
	// cancellation. Zero means no limit.
	BeginTimeout time.Duration

	// Rehearse makes each fn run twice, as a test that fn can run again: see rehearsed.
	Rehearse bool

	// Asker is notified as soon as the engine has a connection. It may be nil.
	Asker interface{ MarkAsked() }
}

// Limits bound how long a transaction waits where the caller's context sets no limit or has ended.
type Limits struct {
	Acquire  time.Duration // the maximum wait for a connection
	Rollback time.Duration // the maximum duration of a statement at the end of a transaction, such as ROLLBACK
	Commit   time.Duration // the maximum wait for the answer to COMMIT after the end of the context
}

// DefaultLimits are the limits of all transactions outside tests.
var DefaultLimits = Limits{Acquire: 30 * time.Second, Rollback: 5 * time.Second, Commit: 5 * time.Second}

// acquire takes a connection. It limits the wait even if ctx has no deadline. Otherwise a Do inside
// the fn of another Do would wait forever on an exhausted pool, because the outer Do holds a
// connection.
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

// WithOwn returns a list for Engine.Prepared: the engine's own statements, BEGIN and COMMIT, and
// then statements.
func WithOwn(statements []*roundtrip.Statement) []*roundtrip.Statement {
	return append(append([]*roundtrip.Statement{}, own...), statements...)
}
