package operation

import (
	"errors"
	"fmt"
	"time"
)

// Every way in which an operation can say no, besides those of package idem.
var (
	// ErrParked says that the operation has stopped, and waits for a person. Its type is *ParkedError.
	ErrParked = errors.New("operation: parked")

	// ErrTimeout says that nobody has signalled within the timeout of an Await.
	ErrTimeout = errors.New("operation: no signal came in time")

	// ErrCancelled says that the operation was cancelled, and is undone.
	ErrCancelled = errors.New("operation: cancelled, and undone")

	// ErrNotParked says that Retry or Resolve was asked for an operation that is not parked, or not at a step whose outcome is
	// unknown; or Cancel, for one that has ended.
	ErrNotParked = errors.New("operation: it is not parked, or not at that step")

	// ErrUnknownOperation says that there is no operation of that id.
	ErrUnknownOperation = errors.New("operation: there is no such operation")

	// ErrInvalidName says that the name of an operation, a step or a signal breaks a rule: 1 to 200 bytes of valid UTF-8
	// without control characters and without "#".
	ErrInvalidName = errors.New("operation: invalid name")

	// ErrValueTooLarge says that an input or the value of a step is above 1 MiB once it is encoded.
	ErrValueTooLarge = errors.New("operation: the value is too large")

	// ErrMisused says that an Op was used outside of its function, by two goroutines at once, or inside of a step.
	ErrMisused = errors.New("operation: steps are taken one after the other, inside the function of the operation")
)

// ParkedError is the ErrParked of one operation.
type ParkedError struct {
	OperationID string
	Step        string // where it has stopped
	Reason      string
	Since       time.Time // when that step was begun, by the database's clock; zero if that is not known
	Cause       error     // the error of the program, or of another system, that has parked it; nil in calls that find it parked
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("%v: operation %s at step %q: %s", ErrParked, e.OperationID, e.Step, e.Reason)
}

// Unwrap makes errors.Is(err, ErrParked) true.
func (e *ParkedError) Unwrap() error { return ErrParked }

// Final returns an error that ends a Call at once, because it will be the same next time: a card that is declined. It goes to
// the function of the operation, which may go another way. If the function returns it, what was done is undone, the key is
// free, and the error is the answer.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{cause: err}
}

// Unknown returns an error that says that nobody knows whether a Call has happened: its answer was lost. What becomes of that
// is up to the safety of the Call. An error that is neither Final nor Unknown is treated alike: it says that there was no
// answer, and does not say why. To take it for a call that has not happened would be to guess.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{cause: err}
}

type unknownError struct{ cause error }

func (e *unknownError) Error() string { return fmt.Sprintf("the outcome is unknown: %v", e.cause) }
func (e *unknownError) Unwrap() error { return e.cause }

type finalError struct{ cause error }

func (e *finalError) Error() string { return e.cause.Error() }
func (e *finalError) Unwrap() error { return e.cause }

// IsFinal reports whether err is, or wraps, an error made by Final.
func IsFinal(err error) bool {
	var final *finalError
	return errors.As(err, &final)
}

var errCancelNoticed = errors.New("operation: it was cancelled meanwhile")

var errPresenceLost = errors.New("operation: this process is not seen by others any more")
