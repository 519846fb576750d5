package idem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// State is what is known of a key at some moment.
type State string

const (
	StateUnused     State = "unused"     // no record, and no call holds it: a call would execute
	StateProcessing State = "processing" // a transaction holds it, or an operation, or an fn has ended its transaction and left it so (ErrTxEnded)
	StateCompleted  State = "completed"  // its effect is committed
	StateFailed     State = "failed"     // rejected for good, its effect was undone
)

// Entry is what Lookup tells of a key. It has nothing of the stored response.
type Entry struct {
	State       State
	ExecutionID string    // of the execution that is recorded, or of the operation that is under way; empty while a transaction is
	Since       time.Time // when the key was claimed; while it is held, when its transaction began, zero if the role may not see that
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Lookup tells the state of a key without claiming it: for a page that shows how far an operation is, and never in order
// to decide whether to call Do, which decides by itself. It writes nothing. The times are those of the database's clock.
//
// That a key is being processed is seen by the lock that its execution holds. Two keys may share one, so for an unused
// key that answer is possible, if improbable.
func Lookup(ctx context.Context, pool *pgxpool.Pool, scope, key string) (Entry, error) {
	if err := checkNames(scope, key); err != nil {
		return Entry{}, err
	}
	if pool == nil {
		return Entry{}, errors.New("idem: pool is nil")
	}
	// First the holder, then the record, each by a statement of its own: an execution gives up its lock after its record has
	// become visible, so that one of the two shows it.
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	holder := store.Holder{Lock: store.LockOf(scope, key)}
	if err := engine.Query(ctx, &holder); err != nil {
		return Entry{}, hint(err)
	}
	live := store.Live{Scope: scope, Key: key}
	if err := engine.Query(ctx, &live); err != nil {
		return Entry{}, hint(err)
	}
	switch r := &live.Record; {
	case live.Found && r.State == store.Running: // until its last commit nothing is completed, and nothing expires
		return Entry{State: StateProcessing, ExecutionID: r.ExecutionID, Since: r.CreatedAt}, nil
	case live.Found:
		return Entry{
			State: State(r.State), ExecutionID: r.ExecutionID,
			Since: r.CreatedAt, CompletedAt: r.CompletedAt, ExpiresAt: r.ExpiresAt,
		}, nil
	case holder.Held:
		return Entry{State: StateProcessing, Since: holder.Since}, nil
	}
	return Entry{State: StateUnused}, nil
}
