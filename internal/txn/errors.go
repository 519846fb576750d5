package txn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a fn can do wrong. Package idem exports them under names of its own, and says more.
var (
	ErrAborted = errors.New("idem: fn returned without an error, but its transaction is aborted")
	ErrEnded   = errors.New("idem: fn must not end the transaction")
)

// UnknownError says that COMMIT was sent, and that the database alone knows the outcome of it.
type UnknownError struct {
	Err error // what came instead of an acknowledgement
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("idem: COMMIT was not acknowledged: %v", e.Err)
}

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// ExhaustedError says that the pool had no connection to give, while the caller's context goes on.
type ExhaustedError struct {
	Waited time.Duration
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("idem: no connection became free within %v; inside fn use DoTx, not Do", e.Waited)
}

// ErrBlocked says that the first statements of a transaction were under way on the server when Engine.BeginTimeout was over, and were
// cancelled: as a rule, because another transaction holds a row.
var ErrBlocked = errors.New("idem: the first statements were not answered in time")

// ErrUnanswered says that the server has answered neither the first statements of a transaction within Engine.BeginTimeout nor the
// request to cancel them: they may wait for a lock, or in the queue of a pooler, or the server may be gone.
var ErrUnanswered = errors.New("idem: neither the first statements nor their cancellation were answered in time")

// Ended makes the ErrEnded of a fn that returned err.
func Ended(how string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrEnded, how)
	}
	return fmt.Errorf("%w: %s; and fn returned: %w", ErrEnded, how, err)
}

func pgError(err error) *pgconn.PgError {
	if err == nil { // first of all: what errors.As is given costs an allocation
		return nil
	}
	var pgErr *pgconn.PgError
	errors.As(err, &pgErr)
	return pgErr
}

// HasCode reports whether err is an error of Postgres with one of these SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	pgErr := pgError(err)
	for _, code := range codes {
		if pgErr != nil && pgErr.Code == code {
			return true
		}
	}
	return false
}

// Rerunnable reports whether Postgres asks for the whole transaction to be run again.
func Rerunnable(err error) bool {
	const serializationFailure, deadlock = "40001", "40P01"
	return HasCode(err, serializationFailure, deadlock)
}

// TooSlow reports whether the server has ended the session because the transaction was idle, or open, for too long. That is
// the doing of the fn that ran in it, and would be the same in another run.
func TooSlow(err error) bool {
	const idleInTransactionTimeout, transactionTimeout = "25P03", "25P04"
	return HasCode(err, idleInTransactionTimeout, transactionTimeout)
}

// LockTimedOut reports whether a statement has waited for a lock as long as it may.
func LockTimedOut(err error) bool { return HasCode(err, "55P03") }

// ReadOnly reports whether the server takes no writes, such as a primary that was demoted.
func ReadOnly(err error) bool { return HasCode(err, "25006") }

// Stale reports whether a prepared statement no longer fits the server: it was discarded, or the table was changed under
// it. A new connection prepares it afresh.
func Stale(err error) bool {
	const noSuchStatement, suchStatement, cachedPlanChanged = "26000", "42P05", "0A000"
	return HasCode(err, noSuchStatement, suchStatement, cachedPlanChanged)
}

// Discarded reports whether the session has lost a statement that was prepared.
func Discarded(err error) bool { return HasCode(err, "26000") }

// Transient reports whether err tells of a state of the server, or of the way to it, that passes.
func Transient(err error) bool {
	if pgErr := pgError(err); pgErr != nil {
		return transientState(pgErr.Code)
	}
	var exhausted *ExhaustedError
	return errors.As(err, &exhausted) || connectionLost(err)
}

func transientState(code string) bool {
	switch code {
	case "40001", "40P01", // serialization_failure, deadlock_detected
		"55P03",                            // lock_not_available
		"25006",                            // read_only_sql_transaction: a demoted primary
		"57P01", "57P02", "57P03", "57P05": // admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout
		return true
	}
	if len(code) != 5 {
		return false
	}
	// Connection exceptions, and insufficient resources: too many connections, out of memory, disk full.
	return code[:2] == "08" || code[:2] == "53"
}

// connectionLost reports whether err tells of a connection that broke, or that could not be had, rather than of an answer.
func connectionLost(err error) bool {
	if errors.Is(err, ErrUnanswered) || errors.Is(err, driver.ErrBadConn) {
		return true
	}
	var refused *pgconn.ConnectError
	switch {
	case errors.As(err, &refused), errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err)
}

// fatal reports whether the server ended the session with this error. A transaction that got it as the answer to COMMIT
// may well be committed.
func fatal(pgErr *pgconn.PgError) bool {
	severity := pgErr.SeverityUnlocalized
	if severity == "" {
		severity = pgErr.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}

// refused reports whether err is an ordinary answer of the server: no, and nothing was done.
func refused(err error) bool {
	pgErr := pgError(err)
	return pgErr != nil && !fatal(pgErr)
}

// Internal reports whether the server has answered with an internal error. To a COMMIT, PostgreSQL gives one as it does any other, as from a
// trigger that is deferred; other servers say by it that they do not know the outcome.
func Internal(err error) bool { return refused(err) && strings.HasPrefix(pgError(err).Code, "XX") }

// uncertain reports whether a server says by an error, as the answer to COMMIT, that it does not know the outcome of the transaction.
// CockroachDB says statement_completion_unknown, Aurora DSQL internal_error, and a pooler whose own connection broke says one
// of class 08. PostgreSQL says none of them there.
func uncertain(err error) bool {
	pgErr := pgError(err)
	return pgErr != nil && (pgErr.Code == "40003" || strings.HasPrefix(pgErr.Code, "XX") || strings.HasPrefix(pgErr.Code, "08"))
}
