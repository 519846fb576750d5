package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/txn"
)

// kind says how an attempt ended, which decides what to do next.
type kind int

const (
	handled  kind = iota // the claimed messages are committed
	failed               // a handler failed, which counts against its message
	hindered             // a lock or a lost connection, for example, hindered the handler of one message
	txEnded              // a handler ended the transaction itself
	rerun                // rolled back or in doubt; another run may succeed
	locked               // another process is handling one of the messages
	stopped              // the context has ended or the database is unavailable: the call ends
)

// result is the end of an attempt.
type result struct {
	kind    kind
	message *delivery // the message whose handler failed or was hindered; nil if it is unknown
	err     error
	inDoubt bool // COMMIT was sent, and its outcome is unknown
}

// exhausted returns the result of an attempt whose retries are used up. Serialization failures and
// deadlocks do not count against a message. A stale prepared statement does count: the error has
// occurred on new connections as well, so it comes from a statement of the handler.
func (r result) exhausted() result {
	r.kind = hindered
	if txn.Stale(r.err) {
		r.kind = failed
	}
	return r
}

// kindOfHandlerError returns what the error of a handler, or of its COMMIT, means. connLost is true
// if the connection of tx is closed. The error alone does not show that: an error such as io.EOF
// usually comes from something else that the handler did. If the database is unavailable, the
// result cannot be recorded, and that ends the call later.
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

// kindOfDatabaseError returns what the error of a statement of this package means. None of the
// kinds that it returns counts an attempt.
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
