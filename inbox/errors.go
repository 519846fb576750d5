package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/txn"
)

// Why a message was not handled, besides what its handler has returned.
var (
	// ErrMismatch: the id of the message belongs to another payload. Its type is *MismatchError.
	ErrMismatch = errors.New("inbox: the id belongs to a message with another payload")

	// ErrInvalidName: the name of a consumer or a source, or the id of a message, is invalid. It has 1 to 512 bytes of valid
	// UTF-8 without control characters.
	ErrInvalidName = errors.New("inbox: invalid name")

	// ErrWaiting: the next attempt is not due yet.
	ErrWaiting = errors.New("inbox: the message has failed before, and its next attempt is not due")

	// ErrBehind: an earlier message of the same key is to be tried again, see WithOrder.
	ErrBehind = errors.New("inbox: an earlier message of its key is to be tried again")

	// ErrPaused: the consumer has failed with many messages in a row, see WithCircuit.
	ErrPaused = errors.New("inbox: the consumer pauses, because it has failed with many messages in a row")

	// ErrElsewhere: another process is handling the message.
	ErrElsewhere = errors.New("inbox: another process is handling the message")

	// ErrSuspected: the last attempt at the message has no recorded end, because its process was killed. A process tries one such
	// message at a time.
	ErrSuspected = errors.New("inbox: the message may kill its process, and waits until another one that may is done")

	// ErrDead: the message is a dead letter since an earlier delivery.
	ErrDead = errors.New("inbox: the message is a dead letter")

	// ErrKilled: the last attempt that the message may have was announced and has no recorded end. The message kills its process.
	ErrKilled = errors.New("inbox: the message kills its process: its last attempt did not come to an end")

	// ErrTxAborted: a handler returned no error from a transaction that can no longer commit. ErrTxEnded: a handler has ended the
	// transaction itself. Both are those of package idem.
	ErrTxAborted = txn.ErrAborted
	ErrTxEnded   = txn.ErrEnded
)

// MismatchError is the ErrMismatch of one message.
type MismatchError struct {
	Source  string
	Message string    // the id of the message, as it was delivered
	Since   time.Time // when the message with the other payload was handled or first failed
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: message %s of source %s, since %s", ErrMismatch, display.Printable(e.Message), display.Printable(e.Source),
		e.Since.UTC().Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// PanicError is what a handler has panicked with. It counts as an attempt that has failed.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("inbox: the handler has panicked: %v", e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errExited = errors.New("inbox: the handler has ended its goroutine")

// hint adds to an error of the database what its reader can do.
func hint(err error) error {
	switch {
	case txn.HasCode(err, "42P01", "3F000", "42703", "42704"):
		return fmt.Errorf("inbox: the schema is missing or out of date, run the migrations of package migrations: %w", err)
	case txn.ReadOnly(err):
		return fmt.Errorf("inbox: this connection is read-only (a replica?), messages are handled on the primary: %w", err)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("inbox: the role needs USAGE on schema idem, SELECT, INSERT and UPDATE on idem.inbox, and SELECT, INSERT, "+
			"UPDATE and DELETE on idem.dead_letters, and to redrive or drop INSERT on idem.audit: %w", err)
	}
	return err
}
