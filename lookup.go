package idem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
)

// State is what is known of a key at some moment.
type State string

const (
	StateUnused     State = "unused"     // no record, and nobody holds it: a call would execute
	StateProcessing State = "processing" // a transaction holds it, or an fn has ended its transaction and left it so (ErrTxEnded)
	StateCompleted  State = "completed"  // its effect is committed
	StateFailed     State = "failed"     // rejected for good, its effect was undone
)

// Status is what Lookup tells of a key. It has nothing of the stored response.
type Status struct {
	State       State
	OperationID string    // of the execution that is recorded; empty while it is under way
	Since       time.Time // when the key was claimed; while it is held, when its transaction began, zero if the role may not see that
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Lookup tells the state of a key without claiming it: for a page that shows how far an operation is, and never in order
// to decide whether to call Do, which decides by itself. It writes nothing. The times are those of the database's clock.
//
// That a key is being processed is seen by the lock that its execution holds. Two keys may share one, so for an unused
// key that answer is possible, if improbable.
func Lookup(ctx context.Context, pool *pgxpool.Pool, scope, key string) (Status, error) {
	if err := checkNames(scope, key); err != nil {
		return Status{}, err
	}
	if pool == nil {
		return Status{}, errors.New("idem: pool is nil")
	}
	queries := db.New(pool)
	// First the holder, then the record, in two transactions: an execution gives up its lock after its record has become
	// visible, so that one of the two shows it.
	holder, err := queries.Holder(ctx, db.HolderParams{Scope: scope, Key: key})
	if err != nil {
		return Status{}, hint(err)
	}
	live, err := queries.Live(ctx, db.LiveParams{Scope: scope, Key: key})
	switch {
	case err == nil:
		return Status{
			State: State(live.State), OperationID: live.OperationID.String(),
			Since: live.CreatedAt.Time.UTC(), CompletedAt: live.CompletedAt.Time.UTC(), ExpiresAt: live.ExpiresAt.Time.UTC(),
		}, nil
	case !errors.Is(err, pgx.ErrNoRows):
		return Status{}, hint(err)
	case holder.Held:
		return Status{State: StateProcessing, Since: holder.Since.Time.UTC()}, nil
	}
	return Status{State: StateUnused}, nil
}
