package operation

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem"
)

// Every way in which an operation can say no, besides those of package idem.
var (
	// ErrParked says that the operation has stopped, and waits for a person. Its type is *ParkedError.
	ErrParked = errors.New("operation: parked")

	// ErrTimeout says that no signal has come within the timeout of an Await.
	ErrTimeout = errors.New("operation: no signal came in time")

	// ErrNoBeat is the cause of the end of an attempt's context when its function has not called Beat for as long as Heartbeat allows.
	ErrNoBeat = errors.New("operation: no beat came in time")

	// ErrCancelled says that the operation was cancelled, and is undone.
	ErrCancelled error = &cancelledError{}

	// ErrUndone says that the operation that was waited for has ended without an answer: it was cancelled, or ended in an error that
	// is Final. What it had done is undone, and its key is free.
	ErrUndone = errors.New("operation: it has ended in an error, and is undone")

	// ErrAnswerGone says that the operation that was waited for has ended, and that its answer is no longer kept: it has
	// expired.
	ErrAnswerGone = errors.New("operation: it has ended, and its answer has expired")

	// ErrNotParked says that Retry or Resolve was asked for an operation that is not parked, or not at a step whose outcome is
	// unknown; or Cancel, for one that has ended.
	ErrNotParked = errors.New("operation: it is not parked, or not at that step")

	// ErrUnknownOperation says that there is no operation of that id.
	ErrUnknownOperation = errors.New("operation: there is no such operation")

	// ErrUnsealed says that a Signal without a Sealer is for an operation whose input is sealed. Nothing was sent: a process that has the Sealer of the
	// operation could not read it. Give it that one, by idem.WithSealer.
	ErrUnsealed = errors.New("operation: it is sealed, and the signal is not: give Signal the Sealer of the operation")

	// ErrInvalidName says that the name of an operation, a step or a signal breaks a rule: 1 to 200 bytes of valid UTF-8
	// without control characters and without "#".
	ErrInvalidName = errors.New("operation: invalid name")

	// ErrValueTooLarge says that an input or the value of a step is above 1 MiB once it is encoded.
	ErrValueTooLarge = errors.New("operation: the value is too large")

	// ErrMisused says that an Op was used outside of its function, by two goroutines at once, or inside of a step; or that Calls were,
	// in another order than Go, Wait and Value.
	ErrMisused = errors.New("operation: steps are taken one after the other, inside the function of the operation")
)

// cancelledError is the answer of every call that has waited for the operation: none of them begins the work anew.
type cancelledError struct{}

func (*cancelledError) Error() string { return "operation: cancelled, and undone" }

// ForDuplicates makes it one of hold.ForDuplicates.
func (*cancelledError) ForDuplicates() {}

// endedError is the error of an operation that has ended in it.
type endedError struct{ cause error }

func (e *endedError) Error() string { return e.cause.Error() }
func (e *endedError) Unwrap() error { return e.cause }

// ForDuplicates makes it one of hold.ForDuplicates.
func (*endedError) ForDuplicates() {}

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

// ChildError is the error of a Child that has not completed: it was rejected, or it is undone. errors.Is finds ErrUndone in it if the child
// was cancelled, or has ended in an error that is Final.
type ChildError struct {
	OperationID string         // of the child
	Cancelled   bool           // it was cancelled
	Rejected    *idem.Response // it has ended in idem.Reject, with this answer; nil if it is undone
}

func (e *ChildError) Error() string {
	switch {
	case e.Rejected != nil:
		return fmt.Sprintf("operation: child %s was rejected with status %d", e.OperationID, e.Rejected.Status)
	case e.Cancelled:
		return fmt.Sprintf("operation: child %s was cancelled, and is undone", e.OperationID)
	}
	return fmt.Sprintf("operation: child %s has ended in an error, and is undone", e.OperationID)
}

// Is reports whether target is ErrUndone, and the child is.
func (e *ChildError) Is(target error) bool { return target == ErrUndone && e.Rejected == nil }

// Final returns an error that ends a Call at once, because it will be the same next time: a card that is declined. It goes to
// the function of the operation, which may go another way. If the function returns it, what was done is undone, the key is
// free, and the error is the answer.
//
// Final is the answer of the other side for the key of the call, and so it also settles an attempt before it that has no answer. An error
// that did not come from the other side, as that of a check before the request, is Final(NotSent(err)).
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{cause: err}
}

// Unknown returns an error that says that it is not known whether a Call has happened: its answer was lost. What happens to that
// is up to the safety of the Call. An error that is neither Final nor NotSent nor Unknown is treated alike: it says that there was no
// answer, and does not say why. To take it for a call that has not happened would be to guess.
//
// The outermost of Unknown, Final and NotSent counts: Unknown of an error that is Final is unknown. Where errors are joined, as those of two
// requests of one attempt are, and one of them is Unknown or none of the three, they are unknown: what one of the requests has come to says nothing of
// the other. fmt.Errorf makes one error, of however many: what it wraps may say what sort of error it is.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{cause: err}
}

// NotSent returns an error that says that this attempt at a Call has not left: no connection came about, a circuit breaker was open. The
// call is tried again after a pause, whatever its safety is, also one that is Once. An attempt that was not sent says nothing about
// those before it: if one of them has no answer, that stays so, also with Final(NotSent(err)).
//
// Final(NotSent(err)) is an attempt that has not left, and will not the next time: an amount that the program itself refuses. It goes to the
// function, unless an attempt before it has no answer. That one is settled first, as the safety of the call says.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &notSentError{cause: err}
}

type notSentError struct{ cause error }

func (e *notSentError) Error() string { return e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }

// said is what an error says of an attempt. If it says nothing, or that the outcome is unknown, there was no answer.
type said struct{ final, unsent, unknown bool }

// saidBy returns what an error says. The outermost word counts: an Unknown hides what it wraps, and, where errors are joined, what it
// stands beside. So does an error that says nothing, unless fmt.Errorf has made one error of them.
func saidBy(err error) (s said) {
	switch e := err.(type) {
	case *unknownError:
		return said{unknown: true}
	case *finalError:
		return said{final: true, unsent: saidBy(e.cause).unsent}
	case *notSentError:
		return said{final: saidBy(e.cause).final, unsent: true}
	case interface{ Unwrap() error }:
		return saidBy(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, joined := range e.Unwrap() {
			one := saidBy(joined)
			if one.unknown || one == (said{}) && reflect.TypeOf(err) != remarkType {
				return said{unknown: true}
			}
			s.final, s.unsent = s.final || one.final, s.unsent || one.unsent
		}
	}
	return s
}

// remarkType is the type of what fmt.Errorf makes of several errors.
var remarkType = reflect.TypeOf(fmt.Errorf("%w%w", ErrParked, ErrParked))

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
