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

// Every way in which a call can say no. Test for them with errors.Is; the typed errors below carry the facts that a
// caller needs in order to act. Errors returned by fn, and errors of Postgres (*pgconn.PgError), are passed on so that
// errors.Is and errors.As find them as they were.
var (
	// ErrInProgress says that another call holds the key and did not end within the wait. Try again later with the same
	// key. Its type is *InProgressError.
	ErrInProgress = errors.New("idem: the key is in progress")

	// ErrMismatch says that the key belongs to a request with another hash. Nothing was executed. Its type is
	// *MismatchError.
	ErrMismatch = errors.New("idem: the key belongs to a different request")

	// ErrInvalidKey says that the key breaks a rule: 1 to 255 bytes of valid UTF-8 without control characters.
	ErrInvalidKey = errors.New("idem: invalid key")

	// ErrInvalidScope says that the scope breaks a rule: 1 to 512 bytes of valid UTF-8 without control characters.
	ErrInvalidScope = errors.New("idem: invalid scope")

	// ErrInvalidJSON means that HashJSON rejects the document, which is a mistake of the sender. The error that wraps it has the
	// reason and the byte offset. It does not quote the document.
	ErrInvalidJSON = canon.ErrDocument

	// ErrInvalidPointer means that HashJSON rejects an argument of Only or Without, which is a mistake of the program. The error
	// that wraps it quotes the pointer.
	ErrInvalidPointer = canon.ErrPointer

	// ErrInvalidHash means that a call was given the zero Hash, usually because the program ignored the error of HashJSON. All
	// such requests would count as the same. Nothing was sent.
	ErrInvalidHash = errors.New("idem: invalid hash")

	// ErrInvalidResponse says that fn returned a response that could not be replayed as it is: a header that is not valid
	// UTF-8 or holds a NUL, or a status beyond 32 bits. Everything was rolled back.
	ErrInvalidResponse = errors.New("idem: the response cannot be stored")

	// ErrResponseTooLarge says that the response is above the limit of WithMaxResponse. Everything was rolled back. Its type
	// is *ResponseTooLargeError.
	ErrResponseTooLarge = errors.New("idem: the response is too large")

	// ErrUnreadable says that a response is recorded for the key and that this call cannot read it: it is sealed and there is
	// no Sealer, or the Sealer does not open it, or lets nothing pass that is plain; or what is stored there is no header.
	// Nothing was executed. A call that has the right Sealer replays it, so a new key would do it twice. Its type is
	// *UnreadableError.
	ErrUnreadable = errors.New("idem: the recorded response cannot be read")

	// ErrOutcomeUnknown says that COMMIT was sent, that no answer came and that the record could not tell in time, which is
	// while the TTL has not passed: Postgres could not be asked, or the COMMIT goes on, as one does that waits for a synchronous
	// standby. It is not cancelled. Try again with the same key to learn the outcome of it: until then the record
	// tells. Its type is *OutcomeUnknownError.
	ErrOutcomeUnknown = errors.New("idem: the outcome is unknown")

	// ErrTxAborted says that fn returned no error from a transaction that can no longer commit: a statement of it had failed,
	// its connection was lost, its rows were left open, or the server has ended the session because fn took too long for
	// idle_in_transaction_session_timeout. Nothing was committed.
	ErrTxAborted = txn.ErrAborted

	// ErrTxEnded says that fn ended the transaction itself, or removed the record that Do had put there. Commit and Rollback
	// on the tx are refused and nothing is committed. If fn got there by raw SQL, whatever it committed is committed without
	// a response, and the key is refused with this error until the record expires or is removed by hand.
	ErrTxEnded = txn.ErrEnded

	// ErrUnsupported says that the server, or a pooler in front of it, has not got what the call needs, such as advisory locks, or
	// savepoints for DoTx. docs/portability.md says which servers have what. Nothing was done. Its type is *UnsupportedError.
	ErrUnsupported = txn.ErrUnsupported

	// ErrPoolExhausted says that no connection of the pool became free within 30 seconds, while the caller's context went on.
	// Nothing was done. Its type is *PoolExhaustedError.
	ErrPoolExhausted = errors.New("idem: no connection became free")
)

// InProgressError is the ErrInProgress of one call.
type InProgressError struct {
	Key        string        // abridged, fit for a log
	RetryAfter time.Duration // how long to leave the key alone
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: key %s, retry after %v", ErrInProgress, e.Key, e.RetryAfter)
}

// Unwrap makes errors.Is(err, ErrInProgress) true.
func (e *InProgressError) Unwrap() error { return ErrInProgress }

// MismatchError is the ErrMismatch of one call. It says nothing about the stored response.
type MismatchError struct {
	Key       string    // abridged, fit for a log
	CreatedAt time.Time // when the key was first used
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: key %s was first used at %s; a new request needs a new key",
		ErrMismatch, e.Key, e.CreatedAt.UTC().Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// ResponseTooLargeError is the ErrResponseTooLarge of one call.
type ResponseTooLargeError struct {
	Size  int // bytes of header and body
	Limit int // what WithMaxResponse allows
}

func (e *ResponseTooLargeError) Error() string {
	return fmt.Sprintf("%v: %d bytes, limit %d; return a reference instead, or raise WithMaxResponse",
		ErrResponseTooLarge, e.Size, e.Limit)
}

// Unwrap makes errors.Is(err, ErrResponseTooLarge) true.
func (e *ResponseTooLargeError) Unwrap() error { return ErrResponseTooLarge }

// UnreadableError is the ErrUnreadable of one call. It says nothing of the response.
type UnreadableError struct {
	Key         string // abridged, fit for a log
	ExecutionID string // of the execution that recorded the response
	SealedBy    string // the id of the key that it is sealed with, empty if it is plain
	Err         error  // of the Sealer, as a rule
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: key %s, execution %s: %v", ErrUnreadable, e.Key, e.ExecutionID, e.Err)
}

// Unwrap makes errors.Is(err, ErrUnreadable) true and keeps the error of the Sealer within reach.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnreadable, e.Err} }

// OutcomeUnknownError is the ErrOutcomeUnknown of one call.
type OutcomeUnknownError struct {
	ExecutionID string // the execution whose fate is unknown: its record, if there is one, carries this id
	Err         error  // what COMMIT answered instead of an acknowledgement
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%v: execution %s: COMMIT was not acknowledged (%v); retry with the same key",
		ErrOutcomeUnknown, e.ExecutionID, e.Err)
}

// Unwrap makes errors.Is(err, ErrOutcomeUnknown) true and keeps the cause within reach of errors.As.
func (e *OutcomeUnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }

// PoolExhaustedError is the ErrPoolExhausted of one call.
type PoolExhaustedError struct {
	Waited time.Duration
}

func (e *PoolExhaustedError) Error() string {
	return fmt.Sprintf("%v within %v; inside fn use DoTx, not Do; or is the pool too small?", ErrPoolExhausted, e.Waited)
}

// Unwrap makes errors.Is(err, ErrPoolExhausted) true.
func (e *PoolExhaustedError) Unwrap() error { return ErrPoolExhausted }

// UnsupportedError is the ErrUnsupported of one call.
type UnsupportedError = txn.UnsupportedError

// Retryable reports whether the same call, with the same key, may succeed if it is made again after a pause. It is true
// for a key in progress, an unknown outcome, a pool without a free connection, a serialization failure or deadlock that
// outlived the retries, a server that is shutting down, recovering, demoted to a replica or out of resources, a lock that was
// not available, and a lost or refused connection. It is false for nil, for refusals that will be the same next time, for the
// end of the caller's own context, and for errors it does not know, those of fn among them. A fn that was too slow for the
// server's timeouts will be again.
func Retryable(err error) bool {
	switch {
	case errors.Is(err, ErrInProgress), errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrPoolExhausted):
		return true
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrTxAborted):
		return false // whatever the server said besides
	}
	return txn.Transient(err)
}

// Cause is the kind of an error, out of a closed set: fit for the label of a metric, and it says nothing of what the error
// says.
type Cause string

// The causes. Some are those of ErrInProgress and the like, the others are what Postgres, the way to it, or the context did.
const (
	CauseNone           Cause = ""
	CauseInProgress     Cause = "in_progress"
	CauseMismatch       Cause = "mismatch"
	CauseInvalid        Cause = "invalid" // key, scope, hash or response
	CauseTooLarge       Cause = "too_large"
	CauseUnreadable     Cause = "unreadable" // the recorded response is sealed otherwise than the Sealer can open
	CauseOutcomeUnknown Cause = "outcome_unknown"
	CauseTxAborted      Cause = "tx_aborted"
	CauseTxEnded        Cause = "tx_ended"
	CausePoolExhausted  Cause = "pool_exhausted"
	CauseConflict       Cause = "conflict"         // a serialization failure or a deadlock
	CauseLockTimeout    Cause = "lock_timeout"     // lock_not_available
	CauseTooSlow        Cause = "too_slow"         // fn outlasted a timeout of the server
	CauseReadOnly       Cause = "read_only"        // a replica, or a primary that was demoted
	CauseOutOfResources Cause = "out_of_resources" // connections, memory or disk of the server
	CauseConnectionLost Cause = "connection_lost"  // broken, refused, or ended by the server
	CausePostgres       Cause = "postgres"         // any other SQLSTATE
	CauseCanceled       Cause = "canceled"         // the context
	CauseDeadline       Cause = "deadline"         // the context's
	CauseOther          Cause = "other"            // of fn, as a rule
)

// causes are looked up in this order.
var causes = []struct {
	is    error
	cause Cause
}{
	{ErrUnreadable, CauseUnreadable}, {ErrOutcomeUnknown, CauseOutcomeUnknown}, {ErrInProgress, CauseInProgress}, {ErrMismatch, CauseMismatch},
	{ErrPoolExhausted, CausePoolExhausted}, {ErrInvalidKey, CauseInvalid}, {ErrInvalidScope, CauseInvalid}, {ErrInvalidHash, CauseInvalid},
	{ErrInvalidResponse, CauseInvalid}, {ErrResponseTooLarge, CauseTooLarge},
	{ErrTxEnded, CauseTxEnded}, {ErrTxAborted, CauseTxAborted},
}

// CauseOf returns the kind of an error of Do.
func CauseOf(err error) Cause {
	if err == nil {
		return CauseNone
	}
	if txn.TooSlow(err) { // ErrTxAborted as well
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

// hint adds to an error of the engine what its reader can do about it.
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
