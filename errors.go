package idem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/canon"
	"github.com/idem-go/idem/internal/txn"
)

// Errors returned by Do and the other functions. Test for them with errors.Is. The error types
// below carry the facts that a caller needs to act. An error of fn or of Postgres (*pgconn.PgError)
// is returned so that errors.Is and errors.As find it.
var (
	// ErrInProgress: another call holds the key and did not end while this call waited. Try again
	// later with the same key. The returned error is an *InProgressError.
	ErrInProgress = errors.New("idem: the key is in progress")

	// ErrMismatch: the key belongs to a request with another hash. Nothing was executed. The
	// returned error is a *MismatchError.
	ErrMismatch = errors.New("idem: the key belongs to a different request")

	// ErrInvalidKey: the key is not 1 to 255 bytes of valid UTF-8 without control characters.
	ErrInvalidKey = errors.New("idem: invalid key")

	// ErrInvalidScope: the scope is not 1 to 512 bytes of valid UTF-8 without control characters.
	ErrInvalidScope = errors.New("idem: invalid scope")

	// ErrInvalidJSON: HashJSON refused the document, because of a mistake of its sender. The
	// returned error contains the reason and the byte offset. It does not quote the document.
	ErrInvalidJSON = canon.ErrDocument

	// ErrInvalidPointer: HashJSON refused a pointer that the program passed to Only or Without. The
	// returned error quotes the pointer.
	ErrInvalidPointer = canon.ErrPointer

	// ErrInvalidHash: the call got the zero Hash, usually because the program ignored the error of
	// HashJSON. All requests with the zero Hash would count as the same request. No statement was
	// sent.
	ErrInvalidHash = errors.New("idem: invalid hash")

	// ErrInvalidResponse: fn returned a response that could not be replayed exactly. A header is
	// not valid UTF-8 or contains a NUL, or the status does not fit into 32 bits. Everything was
	// rolled back.
	ErrInvalidResponse = errors.New("idem: the response cannot be stored")

	// ErrResponseTooLarge: the response exceeds the limit of WithMaxResponse. Everything was rolled
	// back. The returned error is a *ResponseTooLargeError.
	ErrResponseTooLarge = errors.New("idem: the response is too large")

	// ErrUnreadable: a response is recorded for the key, and this call cannot read it. There are
	// four causes: the response is encrypted and the call has no Sealer; the Sealer cannot decrypt
	// the response; the Sealer refuses unencrypted responses; the stored header is damaged. Nothing
	// was executed. A call with the right Sealer replays the response. Do not send a new key, which
	// would execute the request twice. The returned error is an *UnreadableError.
	ErrUnreadable = errors.New("idem: the recorded response cannot be read")

	// ErrOutcomeUnknown: COMMIT was sent, its answer was lost, and the call could not learn the
	// outcome in time. Either Postgres was unavailable, or the COMMIT is still in progress (it may
	// wait for a synchronous standby), or the TTL has passed. The COMMIT is not canceled. To learn
	// the outcome, try again with the same key before the TTL has passed. The returned error is an
	// *OutcomeUnknownError.
	ErrOutcomeUnknown = errors.New("idem: the outcome is unknown")

	// ErrTxAborted: fn returned no error, but its transaction can no longer commit. A statement of
	// fn had failed, the connection was lost, rows were left open, or fn took longer than a timeout
	// of the server, such as idle_in_transaction_session_timeout. Nothing was committed.
	ErrTxAborted = txn.ErrAborted

	// ErrTxEnded: fn ended the transaction itself, or deleted the record of the claim. If fn called
	// Commit or Rollback of tx, the method returned an error and nothing is committed. If fn used
	// raw SQL, its writes may be committed without a response. Every call with the key then returns
	// this error until the record expires or is deleted by hand.
	ErrTxEnded = txn.ErrEnded

	// ErrUnsupported: the server, or a pooler in front of it, lacks something that the call needs,
	// such as advisory locks, or savepoints for DoTx. docs/portability.md lists what each server
	// supports. Nothing was done. The returned error is an *UnsupportedError.
	ErrUnsupported = txn.ErrUnsupported

	// ErrPoolExhausted: no connection of the pool became free within 30 seconds. The caller's
	// context had not ended. Nothing was done. The returned error is a *PoolExhaustedError.
	ErrPoolExhausted = errors.New("idem: no connection became free")
)

// InProgressError is the error of a call whose key is in progress.
type InProgressError struct {
	Key        string        // abridged, so that it may be logged
	RetryAfter time.Duration // how long to wait before the next call
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: key %s, retry after %v", ErrInProgress, e.Key, e.RetryAfter)
}

// Unwrap makes errors.Is(err, ErrInProgress) true.
func (e *InProgressError) Unwrap() error { return ErrInProgress }

// MismatchError is the error of a call whose key belongs to another request. It contains no part
// of the stored response.
type MismatchError struct {
	Key       string    // abridged, so that it may be logged
	CreatedAt time.Time // when the key was first used
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: key %s was first used at %s; a new request needs a new key",
		ErrMismatch, e.Key, e.CreatedAt.UTC().Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// ResponseTooLargeError is the error of a call whose response exceeds its limit.
type ResponseTooLargeError struct {
	Size  int // bytes of header and body
	Limit int // the limit of WithMaxResponse, in bytes
}

func (e *ResponseTooLargeError) Error() string {
	return fmt.Sprintf("%v: %d bytes, limit %d; return a reference instead, or raise WithMaxResponse",
		ErrResponseTooLarge, e.Size, e.Limit)
}

// Unwrap makes errors.Is(err, ErrResponseTooLarge) true.
func (e *ResponseTooLargeError) Unwrap() error { return ErrResponseTooLarge }

// UnreadableError is the error of a call that cannot read the recorded response. It contains no
// part of the response.
type UnreadableError struct {
	Key         string // abridged, so that it may be logged
	ExecutionID string // the id of the execution that recorded the response
	SealedBy    string // the id of the encryption key, empty if the response is plain
	Err         error  // the cause, usually an error of the Sealer
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: key %s, execution %s: %v", ErrUnreadable, e.Key, e.ExecutionID, e.Err)
}

// Unwrap makes errors.Is(err, ErrUnreadable) true, and lets errors.As find the error of the Sealer.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.Err} }

// OutcomeUnknownError is the error of a call that could not learn the outcome of its COMMIT.
type OutcomeUnknownError struct {
	ExecutionID string // the id of the execution; if COMMIT happened, the record has this id
	Err         error  // the error of COMMIT
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%v: execution %s: COMMIT was not acknowledged (%v); retry with the same key",
		ErrOutcomeUnknown, e.ExecutionID, e.Err)
}

// Unwrap makes errors.Is(err, ErrOutcomeUnknown) true, and lets errors.As find the error of COMMIT.
func (e *OutcomeUnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }

// PoolExhaustedError is the error of a call that got no connection.
type PoolExhaustedError struct {
	Waited time.Duration
}

func (e *PoolExhaustedError) Error() string {
	return fmt.Sprintf("%v within %v; inside fn use DoTx, not Do; otherwise enlarge the pool", ErrPoolExhausted, e.Waited)
}

// Unwrap makes errors.Is(err, ErrPoolExhausted) true.
func (e *PoolExhaustedError) Unwrap() error { return ErrPoolExhausted }

// UnsupportedError is the error of a call that needs something the server lacks.
type UnsupportedError = txn.UnsupportedError

// Retryable reports whether the same call, with the same key, may succeed after a pause. It is true
// for
//
//   - a key in progress, an unknown outcome, and a pool without a free connection;
//   - a serialization failure or a deadlock that occurred again in the last retry;
//   - a server that shuts down, recovers, was demoted to a replica, or is out of resources;
//   - a lock that was not available, and a connection that was lost or refused.
//
// It is false for nil, for errors that would recur, such as ErrMismatch, and for the end of the
// caller's context. It is also false for unknown errors, such as errors of fn. It is false if fn
// took longer than a timeout of the server allows, because fn would be too slow again.
func Retryable(err error) bool {
	switch {
	case errors.Is(err, ErrInProgress), errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrPoolExhausted):
		return true
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrTxAborted):
		return false // even if the error also wraps a transient error of the server
	}
	return txn.Transient(err)
}

// Cause is the kind of an error. There is a fixed set of causes, and a cause contains nothing of
// the error's text, so it may be a label of a metric.
type Cause string

// The causes. The causes up to CausePoolExhausted stand for errors of this package. The other
// causes stand for errors of Postgres, of the connection, of the context, or of fn.
const (
	CauseNone           Cause = ""
	CauseInProgress     Cause = "in_progress"
	CauseMismatch       Cause = "mismatch"
	CauseInvalid        Cause = "invalid" // an invalid key, scope, hash or response
	CauseTooLarge       Cause = "too_large"
	CauseUnreadable     Cause = "unreadable" // the recorded response cannot be read
	CauseOutcomeUnknown Cause = "outcome_unknown"
	CauseTxAborted      Cause = "tx_aborted"
	CauseTxEnded        Cause = "tx_ended"
	CausePoolExhausted  Cause = "pool_exhausted"
	CauseConflict       Cause = "conflict"         // a serialization failure or a deadlock
	CauseLockTimeout    Cause = "lock_timeout"     // the SQLSTATE lock_not_available
	CauseTooSlow        Cause = "too_slow"         // fn outlasted a timeout of the server
	CauseReadOnly       Cause = "read_only"        // the server is a replica or a demoted primary
	CauseOutOfResources Cause = "out_of_resources" // the server has too few connections, memory or disk space
	CauseConnectionLost Cause = "connection_lost"  // the connection broke, was refused, or was ended by the server
	CausePostgres       Cause = "postgres"         // any other SQLSTATE
	CauseCanceled       Cause = "canceled"         // the caller's context was canceled
	CauseDeadline       Cause = "deadline"         // the deadline of the caller's context has passed
	CauseOther          Cause = "other"            // usually an error of fn
)

// causes maps the errors of this package to their causes. The first entry that matches an error
// counts.
var causes = []struct {
	is    error
	cause Cause
}{
	{ErrUnreadable, CauseUnreadable}, {ErrOutcomeUnknown, CauseOutcomeUnknown}, {ErrInProgress, CauseInProgress}, {ErrMismatch, CauseMismatch},
	{ErrPoolExhausted, CausePoolExhausted}, {ErrInvalidKey, CauseInvalid}, {ErrInvalidScope, CauseInvalid}, {ErrInvalidHash, CauseInvalid},
	{ErrInvalidResponse, CauseInvalid}, {ErrResponseTooLarge, CauseTooLarge},
	{ErrTxEnded, CauseTxEnded}, {ErrTxAborted, CauseTxAborted},
}

// CauseOf returns the kind of an error that Do or another function of this package returned.
func CauseOf(err error) Cause {
	if err == nil {
		return CauseNone
	}
	if txn.TooSlow(err) { // checked before the table, because the error may also wrap ErrTxAborted
		return CauseTooSlow
	}
	for _, known := range causes {
		if errors.Is(err, known.is) {
			return known.cause
		}
	}
	var pgErr *pgconn.PgError
	switch {
	case txn.Rerunnable(err):
		return CauseConflict
	case txn.LockTimedOut(err):
		return CauseLockTimeout
	case txn.ReadOnly(err):
		return CauseReadOnly
	case errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "53"):
		return CauseOutOfResources
	case txn.Transient(err):
		return CauseConnectionLost
	case pgErr != nil:
		return CausePostgres
	case errors.Is(err, context.Canceled):
		return CauseCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return CauseDeadline
	}
	return CauseOther
}

// hint adds advice for the operator to an error of package txn.
func hint(err error) error {
	var exhausted *txn.ExhaustedError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &exhausted):
		return &PoolExhaustedError{Waited: exhausted.Waited}
	case !errors.As(err, &pgErr):
		return err
	}
	switch pgErr.Code {
	case "42P01", "3F000", "42703", "42704":
		return fmt.Errorf("idem: the schema is missing or out of date, run the migrations of package migrations: %w", err)
	case "25006":
		return fmt.Errorf("idem: this connection is read-only (a replica?), records are written and read on the primary: %w", err)
	case "42501":
		return fmt.Errorf("idem: the role needs USAGE on schema idem and SELECT, INSERT, UPDATE on idem.records: %w", err)
	}
	return err
}
