package operation

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/idem-go/idem"
)

// Errors of operations, besides those of package idem.
var (
	// ErrParked is the error of an operation that has stopped and waits for a person. Its type is
	// *ParkedError.
	ErrParked = errors.New("operation: parked")

	// ErrTimeout is the error of an Await whose signal has not come within its timeout.
	ErrTimeout = errors.New("operation: no signal came in time")

	// ErrNotHappened is the Final error of a call of which a person has said NotHappened.
	ErrNotHappened = errors.New("operation: the call has not happened, and is not made")

	// ErrCanceled is the error of an operation that was canceled and is undone.
	ErrCanceled error = &canceledError{}

	// ErrUndone is the error of waiting for an operation that has ended without an answer: it was
	// canceled, or ended in a Final error. What was done is undone, and its key is free.
	ErrUndone = errors.New("operation: it has ended in an error, and is undone")

	// ErrAnswerGone is the error of waiting for an operation that has ended, and whose answer has
	// expired.
	ErrAnswerGone = errors.New("operation: it has ended, and its answer has expired")

	// ErrNotParked is the error of Retry or Resolve for an operation that is not parked, or not at
	// a call in doubt; and of Cancel for one that has ended otherwise.
	ErrNotParked = errors.New("operation: it is not parked, or not at that step")

	// ErrUnsealed is the error of a Signal without a Sealer to an operation whose input is sealed.
	// Nothing was sent.
	ErrUnsealed = errors.New("operation: the operation is sealed, and the signal is not: give Signal the Sealer of the operation, by idem.WithSealer")

	// ErrMisused is the error of an Op that is used outside of its function, by two goroutines at
	// once, or inside of a step; and of Calls that are used in another order than Go, Wait, Value.
	ErrMisused = errors.New("operation: steps are taken one after the other, inside the function of the operation")
)

// canceledError is the answer of every call that has waited for the operation: none of them begins
// the work anew.
type canceledError struct{}

func (*canceledError) Error() string { return "operation: canceled, and undone" }

// ForDuplicates makes it a bridge.ForDuplicates.
func (*canceledError) ForDuplicates() {}

// endedError is the error of an operation that has ended in it.
type endedError struct{ cause error }

func (e *endedError) Error() string { return e.cause.Error() }
func (e *endedError) Unwrap() error { return e.cause }

// ForDuplicates makes it a bridge.ForDuplicates.
func (*endedError) ForDuplicates() {}

// ChildError is the error of a Child that has not completed: it was rejected, or it is undone.
// errors.Is finds ErrUndone in it if the child was canceled, or has ended in a Final error.
type ChildError struct {
	OperationID string         // of the child
	Canceled    bool           // it was canceled
	Rejected    *idem.Response // the answer if it ended in idem.Reject; nil if it is undone
}

func (e *ChildError) Error() string {
	switch {
	case e.Rejected != nil:
		return fmt.Sprintf("operation: child %s was rejected with status %d", e.OperationID, e.Rejected.Status)
	case e.Canceled:
		return fmt.Sprintf("operation: child %s was canceled, and is undone", e.OperationID)
	}
	return fmt.Sprintf("operation: child %s has ended in an error, and is undone", e.OperationID)
}

// Is reports whether target is ErrUndone, and the child is.
func (e *ChildError) Is(target error) bool { return target == ErrUndone && e.Rejected == nil }

// Final returns an error that ends a Call at once, because the next attempt would have the same
// outcome: a card that is declined. The function of the operation gets it, and may go on another
// way. If the function returns it, the operation is undone, its key is free, and the error is the
// answer.
//
// Final is the answer of the other side for the key of the call. It settles earlier attempts in
// doubt. An error that does not come from the other side, such as that of a check before the
// request, is Final(NotSent(err)).
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{cause: err}
}

// Unknown returns an error that says that the outcome of an attempt is in doubt: its answer was
// lost. The Policy of the call says what follows. An error that is neither Final nor NotSent nor
// Unknown is treated alike.
//
// The outermost of Unknown, Final and NotSent counts. An error that joins several is in doubt if
// one of them is Unknown, or none of the three. An error of fmt.Errorf is one error, however many
// it wraps.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{cause: err}
}

// NotSent returns an error that says that this attempt was not sent: no connection came about, a
// circuit breaker was open. The call is tried again after its backoff, whatever its policy is. It
// says nothing of earlier attempts: if one of them is in doubt, it stays so.
//
// Final(NotSent(err)) is an attempt that was not sent, and will not be: an amount that the program
// itself refuses. The function gets it, unless an earlier attempt is in doubt. That attempt is
// settled first, as the policy says.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &notSentError{cause: err}
}

type notSentError struct{ cause error }

func (e *notSentError) Error() string { return e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }
func (e *notSentError) IsFinal() bool { return false }

type unknownError struct{ cause error }

func (e *unknownError) Error() string { return fmt.Sprintf("the outcome is unknown: %v", e.cause) }
func (e *unknownError) Unwrap() error { return e.cause }
func (e *unknownError) IsFinal() bool { return false }

type finalError struct{ cause error }

func (e *finalError) Error() string { return e.cause.Error() }
func (e *finalError) Unwrap() error { return e.cause }
func (e *finalError) IsFinal() bool { return true }

// said is what an error says of an attempt. The zero value says nothing: the attempt is in doubt.
type said struct{ final, unsent, unknown bool }

// saidBy returns what an error says. The outermost word counts: an Unknown hides what it wraps, and
// what it is joined with. So does a joined error that says nothing, unless fmt.Errorf has made one
// error of them.
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
			if one.unknown || one == (said{}) && reflect.TypeOf(err) != wrapsType {
				return said{unknown: true}
			}
			s.final, s.unsent = s.final || one.final, s.unsent || one.unsent
		}
	}
	return s
}

// wrapsType is the type of what fmt.Errorf makes of several errors.
var wrapsType = reflect.TypeOf(fmt.Errorf("%w%w", ErrParked, ErrParked))

// IsFinal reports whether err is, or wraps, an error made by Final.
func IsFinal(err error) bool {
	var final *finalError
	return errors.As(err, &final)
}

var errCancelNoticed = errors.New("operation: it was canceled meanwhile")
