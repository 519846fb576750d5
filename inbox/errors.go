package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/txn"
)

// The reasons why a message was not handled, other than an error of its handler.
var (
	// ErrMismatch: the ID of the message belongs to another payload. The error in the Outcome is a
	// *MismatchError.
	ErrMismatch = errors.New("inbox: the ID belongs to a message with another payload; find the producer that used it twice")

	// ErrInvalidName: the name of a consumer or a source, or the ID of a message, is not 1 to 512
	// bytes of valid UTF-8 without control characters.
	ErrInvalidName = errors.New("inbox: invalid name")

	// ErrWaiting: the next attempt is not due yet.
	ErrWaiting = errors.New("inbox: the message failed before, and its next attempt is not due yet")

	// ErrBehind: an earlier message of the same key has to be tried again first. See WithOrder.
	ErrBehind = errors.New("inbox: the message waits behind an earlier message of its key, which has to be tried again")

	// ErrPaused: the consumer is paused after too many failures in a row. See WithCircuit.
	ErrPaused = errors.New("inbox: the consumer is paused after many failures in a row; repair what its handlers need")

	// ErrElsewhere: another process is handling the message.
	ErrElsewhere = errors.New("inbox: another process is handling the message")

	// ErrSuspected: the last attempt at the message has no recorded end, so the message may have
	// killed its process. A process tries one such message at a time, and is trying another one now.
	ErrSuspected = errors.New("inbox: the last attempt at the message may have killed its process; it waits for another such message")

	// ErrDead: an earlier delivery made the message a dead letter.
	ErrDead = errors.New("inbox: the message is a dead letter; redrive or drop it")

	// ErrKilled: the message has used up the attempts of WithMaxAttempts. The last attempt was counted
	// before it began, and has no recorded end.
	ErrKilled = errors.New("inbox: the message kills its process: its last attempt has no recorded end")

	// ErrTxAborted and ErrTxEnded are the errors of the same names in package idem. ErrTxAborted: a
	// handler returned no error, but its transaction can no longer commit. ErrTxEnded: a handler
	// committed or rolled back its transaction.
	ErrTxAborted = txn.ErrAborted
	ErrTxEnded   = txn.ErrEnded
)

var (
	errNoPool = errors.New("inbox: the pool is nil; pass a pool")
	errNoFn   = errors.New("inbox: fn is nil; pass a handler")
	errExited = errors.New("inbox: the handler ended its goroutine")
)

// MismatchError is the error of a message whose ID belongs to another payload. It wraps
// ErrMismatch.
type MismatchError struct {
	Source  string
	Message string    // the ID of the message
	Since   time.Time // when the message with the other payload was handled, or failed first
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: message %s of source %s, since %s", ErrMismatch, display.Printable(e.Message), display.Printable(e.Source),
		e.Since.UTC().Format(time.RFC3339))
}

// Unwrap returns ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// PanicError is the error of a handler that panicked. It counts as a failed attempt.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("inbox: the handler panicked: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// hint adds to an error of the database what its reader can do about it.
func hint(err error) error {
	switch {
	case txn.HasCode(err, "42P01", "3F000", "42703", "42704"):
		return fmt.Errorf("inbox: the schema is missing or out of date: %w; run the migrations of package migrations", err)
	case txn.ReadOnly(err):
		return fmt.Errorf("inbox: the connection is read-only: %w; connect to the primary", err)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("inbox: a privilege is missing: %w; grant the role USAGE on schema idem, SELECT, INSERT and UPDATE on idem.inbox, "+
			"SELECT, INSERT, UPDATE and DELETE on idem.dead_letters and, to redrive or drop, INSERT on idem.audit", err)
	}
	return err
}

// classOf returns the class of a dead letter, for statistics and for people.
func classOf(err error) string {
	var panicked *PanicError
	switch {
	case errors.Is(err, ErrMismatch):
		return "mismatch"
	case errors.Is(err, ErrInvalidName):
		return "invalid"
	case errors.Is(err, ErrKilled):
		return "killed"
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, errExited):
		return "exit"
	case errors.Is(err, ErrTxEnded):
		return "ended"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return deadletter.ClassOf(err)
}
