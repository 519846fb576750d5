package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/txn"
)

// kind says how an attempt ended, and so what to do next.
type kind int

const (
	handled  kind = iota // the claimed messages are committed
	failed               // a handler failed, which counts against its message
	hindered             // something else hindered a handler, and may not hinder others
	txEnded              // a handler ended the transaction itself
	rerun                // rolled back or in doubt, for a reason that may be gone in another run
	locked               // another process is handling one of the messages
	stopped              // the context has ended or the database is unavailable: the call ends
)

// result is the end of an attempt.
type result struct {
	kind    kind
	message *delivery // whose handler failed or was hindered; nil if that is unknown
	err     error
	inDoubt bool // COMMIT was sent, and its outcome is unknown
}

// exhausted returns the result of an attempt that has used up its reruns. Serialization failures
// and deadlocks count against no message. An error that looks like a stale prepared statement, but
// occurs on new connections as well, is an error in a statement of the handler.
func (r result) exhausted() result {
	r.kind = hindered
	if txn.Stale(r.err) {
		r.kind = failed
	}
	return r
}

// kindOfHandlerError returns what the error of a handler, or of its COMMIT, means. connLost reports
// whether the connection of tx is closed: an error such as io.EOF alone usually comes from
// something else that the handler did. If the database is unavailable, recording the result fails,
// and the call ends then.
func kindOfHandlerError(ctx context.Context, err error, connLost bool) kind {
	var pgErr *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return stopped
	case errors.Is(err, ErrTxEnded):
		return txEnded
	case txn.Rerunnable(err), txn.Stale(err):
		return rerun
	case errors.Is(err, context.DeadlineExceeded), txn.TooSlow(err): // a deadline of the handler or of the server
		return failed
	case connLost, errors.Is(err, context.Canceled), errors.As(err, &pgErr) && txn.Transient(err):
		return hindered
	}
	return failed
}

// kindOfDatabaseError returns what the error of a statement of this package means. It counts
// against no message.
func kindOfDatabaseError(ctx context.Context, err error) kind {
	switch {
	case ctx.Err() != nil:
		return stopped
	case txn.LockTimedOut(err):
		return locked
	case txn.Rerunnable(err), txn.Stale(err):
		return rerun
	}
	return stopped
}
