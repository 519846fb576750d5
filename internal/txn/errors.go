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

// Errors for mistakes in a fn. Package idem exports both errors and documents them.
var (
	ErrAborted = errors.New("idem: fn returned without an error, but its transaction is aborted")
	ErrEnded   = errors.New("idem: fn must not end the transaction")
)

// UnknownError reports a COMMIT that was sent and not acknowledged. Only the database knows its
// outcome.
type UnknownError struct {
	Err error // the error that came instead of an acknowledgement
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("idem: COMMIT was not acknowledged: %v", e.Err)
}

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// ExhaustedError reports that no connection became free before the limit, although the caller's
// context had not ended.
type ExhaustedError struct {
	Waited time.Duration
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("idem: no connection became free within %v; inside fn use DoTx, not Do", e.Waited)
}

// ErrBlocked reports that the first statements of a transaction were still running after
// Engine.BeginTimeout, and that the server canceled them. Usually another transaction holds a row
// lock.
var ErrBlocked = errors.New("idem: the first statements were not answered in time")

// ErrUnanswered reports that the server answered neither the first statements within
// Engine.BeginTimeout nor the request to cancel them. The statements may be waiting for a lock or
// in the queue of a pooler, or the server may be unavailable.
var ErrUnanswered = errors.New("idem: neither the first statements nor their cancellation were answered in time")

// Ended returns an error that wraps ErrEnded, for a fn that returned err. The text how says how fn
// ended the transaction.
func Ended(how string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrEnded, how)
	}
	return fmt.Errorf("%w: %s; and fn returned: %w", ErrEnded, how, err)
}

func pgError(err error) *pgconn.PgError {
	if err == nil { // a shortcut: errors.As makes pgErr escape to the heap
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

// Rerunnable reports whether err is a serialization failure or a deadlock, after which the whole
// transaction may run again.
func Rerunnable(err error) bool {
	const serializationFailure, deadlock = "40001", "40P01"
	return HasCode(err, serializationFailure, deadlock)
}

// lostSavepoint reports whether a statement failed because its savepoint no longer exists, which
// means that fn has ended the transaction.
func lostSavepoint(err error) bool {
	const noTransaction, noSavepoint = "25P01", "3B001"
	return HasCode(err, noTransaction, noSavepoint)
}

// TooSlow reports whether the server ended the session because the transaction was idle or open for
// too long. Another run of fn would be too slow again.
func TooSlow(err error) bool {
	const idleInTransactionTimeout, transactionTimeout = "25P03", "25P04"
	return HasCode(err, idleInTransactionTimeout, transactionTimeout)
}

// LockTimedOut reports whether a statement did not get a lock before its lock timeout.
func LockTimedOut(err error) bool { return HasCode(err, "55P03") }

// ReadOnly reports whether err says that the server refuses writes, as a demoted primary does.
func ReadOnly(err error) bool { return HasCode(err, "25006") }

// Stale reports whether a prepared statement no longer fits the server: it was discarded, or its
// table was altered. A new connection prepares the statement again.
func Stale(err error) bool {
	const noSuchStatement, suchStatement, cachedPlanChanged = "26000", "42P05", "0A000"
	return HasCode(err, noSuchStatement, suchStatement, cachedPlanChanged)
}

// Discarded reports whether the session has lost a prepared statement.
func Discarded(err error) bool { return HasCode(err, "26000") }

// Transient reports whether err is caused by a temporary state of the server or of the connection.
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
	// Connection exceptions, and insufficient resources: too many connections, out of memory, disk
	// full.
	return code[:2] == "08" || code[:2] == "53"
}

// connectionLost reports whether err means that a connection was lost or could not be opened.
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

// fatal reports whether the server ended the session with this error. As the answer to COMMIT, such
// an error leaves the outcome unknown.
func fatal(pgErr *pgconn.PgError) bool {
	severity := pgErr.SeverityUnlocalized
	if severity == "" {
		severity = pgErr.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}

// refused reports whether err is an ordinary error of the server, so that the statement had no
// effect.
func refused(err error) bool {
	pgErr := pgError(err)
	return pgErr != nil && !fatal(pgErr)
}

// Internal reports whether the server answered with an internal error. PostgreSQL answers a COMMIT
// with an internal error for ordinary failures, such as the failure of a deferred trigger. Other
// servers answer a COMMIT with it if they do not know the outcome.
func Internal(err error) bool { return refused(err) && strings.HasPrefix(pgError(err).Code, "XX") }

// uncertain reports whether err, an answer to COMMIT, may mean that the server does not know the
// outcome. CockroachDB then sends statement_completion_unknown, Aurora DSQL sends internal_error,
// and a pooler that lost its own connection sends an error of class 08. PostgreSQL itself sends
// none of these errors for that reason.
func uncertain(err error) bool {
	pgErr := pgError(err)
	return pgErr != nil && (pgErr.Code == "40003" || strings.HasPrefix(pgErr.Code, "XX") || strings.HasPrefix(pgErr.Code, "08"))
}

// ErrUnsupported reports that the server, or a pooler in front of it, lacks something that a
// statement of the library needs.
var ErrUnsupported = errors.New("idem: the server does not have what this needs")

// UnsupportedError is the ErrUnsupported of one statement, with the error of the server.
type UnsupportedError struct {
	Err error // the error of the server
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: %v; docs/portability.md says which servers have it, and what works without", ErrUnsupported, e.Err)
}

// Unwrap makes errors.Is(err, ErrUnsupported) true, and lets errors.As find the error of the
// server.
func (e *UnsupportedError) Unwrap() []error { return []error{ErrUnsupported, e.Err} }

// AsUnsupported returns an *UnsupportedError if err says that the server lacks a function or a
// feature. Otherwise it returns err. It must be used only for errors of the library's own
// statements, because a statement of fn may by mistake call a function that does not exist.
func AsUnsupported(err error) error {
	const undefinedFunction, featureNotSupported = "42883", "0A000"
	const planChanged = "RevalidateCachedQuery" // its errors have the same SQLSTATE, but preparing again helps
	if !HasCode(err, undefinedFunction, featureNotSupported) || pgError(err).Routine == planChanged {
		return err
	}
	return &UnsupportedError{Err: err}
}

// ServerError returns the error of the server in an *UnsupportedError, and any other err as it is.
// It is for requests that make the server run code of the application, such as a deferred trigger.
func ServerError(err error) error {
	if lacking, is := errors.AsType[*UnsupportedError](err); is {
		return lacking.Err
	}
	return err
}
