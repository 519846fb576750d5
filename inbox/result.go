package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/txn"
)

// kind is what an attempt came to.
type kind int

const (
	through  kind = iota // what it has claimed is committed
	failed               // a handler has failed
	hindered             // something that is not its fault has kept a handler from its work, others may fare better
	ended                // a handler has ended the transaction
	again                // rolled back, or not known, for a reason that makes it worth another run at once
	held                 // another consumer is handling one of the messages
	stopped              // the call is over: its context has ended, or the database is away
)

// ending is how an attempt ended.
type ending struct {
	kind    kind
	culprit *delivery // whose handler has failed or was hindered, if that is known
	err     error

	unacknowledged bool // COMMIT was sent, and the outcome of it is not known
}

// exhausted is the ending of an attempt that was run again in vain, as often as it may be. Serialization failures and deadlocks are
// no message's fault. What is told like a stale statement, on new connections as well, is a mistake in a statement of the handler's.
func (e ending) exhausted() ending {
	e.kind = hindered
	if txn.Stale(e.err) {
		e.kind = failed
	}
	return e
}

// judge tells what an error that a handler has returned, or run into, says about it. lost says that the connection is gone: an
// error such as io.EOF says so of something else of the handler's, as a rule. Whether the database is away, or only this one
// message was hindered, is found out when that is registered.
func judge(ctx context.Context, err error, lost bool) kind {
	var pgErr *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return stopped
	case errors.Is(err, ErrTxEnded):
		return ended
	case txn.Rerunnable(err), txn.Stale(err):
		return again
	case errors.Is(err, context.DeadlineExceeded), txn.TooSlow(err): // a deadline of the handler's own, or the server's for it
		return failed
	case lost, errors.Is(err, context.Canceled), errors.As(err, &pgErr) && txn.Transient(err):
		return hindered
	}
	return failed
}

// judgeDatabase does so for an error of a statement of ours, for which no handler is to blame.
func judgeDatabase(ctx context.Context, err error) kind {
	switch {
	case ctx.Err() != nil:
		return stopped
	case txn.LockTimedOut(err):
		return held
	case txn.Rerunnable(err), txn.Stale(err):
		return again
	}
	return stopped
}

// The classes of dead letters, besides those of package deadletter.
const (
	classMismatch = "mismatch"
	classInvalid  = "invalid"
	classKilled   = "killed"
	classEnded    = "ended"
	classPanic    = "panic"
	classExit     = "exit"
	classDeadline = "deadline"
)

// classOf returns what kind of error it is: for statistics and for people.
func classOf(err error) string {
	var panicked *PanicError
	switch {
	case errors.Is(err, ErrMismatch):
		return classMismatch
	case errors.Is(err, ErrInvalidName):
		return classInvalid
	case errors.Is(err, ErrKilled):
		return classKilled
	case errors.As(err, &panicked):
		return classPanic
	case errors.Is(err, errExited):
		return classExit
	case errors.Is(err, ErrTxEnded):
		return classEnded
	case errors.Is(err, context.DeadlineExceeded):
		return classDeadline
	}
	return deadletter.ClassOf(err)
}
