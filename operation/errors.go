package operation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/storederror"
)

// Errors of operations, besides those of package idem.
var (
	// ErrParked is the error of an operation that is parked: a person must decide how it continues.
	// Its type is *ParkedError.
	ErrParked = errors.New("operation: parked")

	// ErrTimeout is the error of an Await whose signal was not sent within the timeout.
	ErrTimeout = errors.New("operation: no signal came in time")

	// ErrNotHappened is the Final error of a call that a person resolved with NotHappened, and of a
	// call that has not happened when its operation is undone, if later steps are recorded.
	ErrNotHappened = errors.New("operation: the call has not happened, and will not be made")

	// ErrCanceled is the error of an operation that was canceled and is undone.
	ErrCanceled error = &endedError{cause: errors.New("operation: canceled, and undone")}

	// ErrUndone is the error of waiting for an operation that ended without an answer: it was
	// canceled, or ended in a Final error. Its steps are undone, and its key is free.
	ErrUndone = errors.New("operation: ended in an error, and undone")

	// ErrAnswerGone is the error of waiting for an operation that has ended, and whose answer has
	// expired.
	ErrAnswerGone = errors.New("operation: ended, and the answer has expired")

	// ErrNotParked is the error of Retry and Resolve if the operation is not parked, or not at a
	// call in doubt. It is also the error of Cancel if the operation has ended otherwise.
	ErrNotParked = errors.New("operation: not parked, or not at a call in doubt")

	// ErrUnsealed is the error of a Signal without a Sealer to an operation whose input is sealed.
	// Nothing was sent.
	ErrUnsealed = errors.New("operation: Signal needs the Sealer of the operation: pass it by idem.WithSealer")

	// ErrMisused is the error of using an Op outside of its function, from two goroutines at once,
	// or inside of a step. It is also the error of Calls used in another order than Go, Wait,
	// Value.
	ErrMisused = errors.New("operation: misuse of an Op or of Calls: take steps one after the other, inside the function of the operation")
)

// errCancelNoticed stops a run that has found that its operation was canceled.
var errCancelNoticed = errors.New("operation: canceled while it was in progress")

// endedError is the error in which an operation has ended. Every call that waited for the operation
// returns it instead of beginning a new operation.
type endedError struct{ cause error }

func (e *endedError) Error() string { return e.cause.Error() }
func (e *endedError) Unwrap() error { return e.cause }

// ForDuplicates implements bridge.ForDuplicates.
func (*endedError) ForDuplicates() {}

// foreignError is an error of the function about another operation, which has ended or is parked.
// The function's own operation continues, so errors.Is and errors.As must not match the errors that
// would say otherwise.
type foreignError struct{ cause error }

// runError returns the error of a call whose run has failed while its operation continues.
func runError(err error) error {
	var ended bridge.ForDuplicates
	if errors.As(err, &ended) || errors.Is(err, ErrParked) {
		return &foreignError{cause: err}
	}
	return err
}

func (e *foreignError) Error() string { return e.cause.Error() }

func (e *foreignError) Is(target error) bool {
	return target != ErrCanceled && target != ErrParked && errors.Is(e.cause, target)
}

func (e *foreignError) As(target any) bool {
	switch target.(type) {
	case **ParkedError, **endedError, *bridge.ForDuplicates:
		return false
	}
	return errors.As(e.cause, target)
}

// ChildError is the error of a Child that was rejected or undone. errors.Is finds ErrUndone in it
// if the child was canceled or ended in a Final error.
type ChildError struct {
	OperationID string         // of the child
	Canceled    bool           // the child was canceled
	Rejected    *idem.Response // the answer of a child that ended in idem.Reject; nil if it is undone
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

// Is reports whether target is ErrUndone and the child is undone.
func (e *ChildError) Is(target error) bool { return target == ErrUndone && e.Rejected == nil }

// Reason is why an operation is parked, as a code for programs and alerts.
// docs/operations-reference.md says what to do about each.
type Reason string

// The reasons.
const (
	ReasonCallInDoubt       Reason = "call_in_doubt"      // a call may have happened, and its policy does not allow to repeat it
	ReasonAttemptsExhausted Reason = "attempts_exhausted" // a call or an undo used up its attempts or its deadline, and may have happened
	ReasonCodeChanged       Reason = "code_changed"       // the code asks for another step than the recorded one
	ReasonValueUnreadable   Reason = "value_unreadable"   // a recorded value does not decode, or the value of a call cannot be stored
	ReasonSignalUnreadable  Reason = "signal_unreadable"  // a signal does not decode
	ReasonUndoFailed        Reason = "undo_failed"        // an undo has failed for good
	ReasonTxEnded           Reason = "tx_ended"           // the fn of a step has ended its transaction
	ReasonFunctionFailed    Reason = "function_failed"    // the operation was canceled, and its function fails before its last recorded step
	ReasonTooManyDeaths     Reason = "too_many_deaths"    // too many processes in a row have died while they worked on the operation
)

// ParkedError is the ErrParked of one operation.
type ParkedError struct {
	OperationID string
	Step        string // at which the operation is parked
	Reason      Reason
	ReasonText  string
	Since       time.Time // when that step was begun, by the database's clock; zero if not known
	Cause       error     // the error of the program, or of another system, that led to it; nil in calls that find the operation parked
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("%v: operation %s at step %q: %s", ErrParked, e.OperationID, e.Step, e.ReasonText)
}

// Unwrap makes errors.Is(err, ErrParked) true.
func (e *ParkedError) Unwrap() error { return ErrParked }

// stop is why a run takes no further step. Every later step of the run returns it, and the run ends
// as it says even if the function ignores the error.
type stop struct {
	kind      stopKind
	err       error
	uncounted bool // of stopRerun: the next run does not count as a retry

	// The rest belongs to stopParked.
	reason  Reason
	step    string // at which the operation parks
	text    string
	cause   error // the error of the program, or of another system; may be nil
	attempt int   // which attempt returned cause; 0 if cause is not from an attempt
}

type stopKind int

const (
	stopRerun      stopKind = iota // the transaction is lost: the function runs again from the record
	stopLost                       // another process has claimed the operation
	stopSuspended                  // the operation waits until it is due
	stopCallerLeft                 // the context of the caller has ended
	stopParked                     // a person must decide
	stopUnknown                    // the first COMMIT was not acknowledged
	stopFailed                     // the run fails with err
	stopUnwound                    // the function runs no further, and the done steps are undone
)

// parked returns the stop of a run that parks its operation at a step.
func parked(step string, reason Reason, format string, args ...any) *stop {
	return &stop{kind: stopParked, step: step, reason: reason, text: fmt.Sprintf(format, args...)}
}

func (s *stop) Error() string {
	switch {
	case s.kind == stopParked:
		return fmt.Sprintf("%v: %s", ErrParked, s.text)
	case s.err != nil:
		return fmt.Sprintf("operation: no further step is taken: %v", s.err)
	}
	return "operation: no further step is taken in this run"
}

func (s *stop) Unwrap() error {
	if s.kind == stopParked {
		return ErrParked
	}
	return s.err
}

// Final returns an error that ends a Call at once, because every further attempt would have the
// same outcome: a card that is declined. The function of the operation gets the error, and may
// continue another way. If the function returns it, the operation is undone, its key is free, and
// the error is the answer.
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

// NotSent returns an error that says that this attempt was not sent: the connection failed, or a
// circuit breaker was open. The call is tried again after its backoff, whatever its policy is. The
// error says nothing about earlier attempts: an attempt in doubt stays in doubt.
//
// Final(NotSent(err)) is an attempt that was not sent and never will be: an amount that the program
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

// IsFinal reports whether err is, or wraps, an error made by Final.
func IsFinal(err error) bool {
	var final *finalError
	return errors.As(err, &final)
}

// meaning is what an error says about an attempt. The zero value says nothing: the attempt is in
// doubt.
type meaning struct{ final, unsent, unknown bool }

// meaningOf returns what err says about the attempt that returned it. The outermost of Final,
// NotSent and Unknown counts. An Unknown hides the errors that it wraps or is joined with. A plain
// error in an errors.Join has the same effect, because its attempt may have been sent. fmt.Errorf
// with several %w makes one error, so plain errors in it are ignored.
func meaningOf(err error) (m meaning) {
	switch e := err.(type) {
	case *unknownError:
		return meaning{unknown: true}
	case *finalError:
		return meaning{final: true, unsent: meaningOf(e.cause).unsent}
	case *notSentError:
		return meaning{final: meaningOf(e.cause).final, unsent: true}
	case interface{ Unwrap() error }:
		return meaningOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, joined := range e.Unwrap() {
			one := meaningOf(joined)
			if one.unknown || one == (meaning{}) && reflect.TypeOf(err) != wrapsType {
				return meaning{unknown: true}
			}
			m.final, m.unsent = m.final || one.final, m.unsent || one.unsent
		}
	}
	return m
}

// wrapsType is the type of an error that fmt.Errorf returns for several %w.
var wrapsType = reflect.TypeOf(fmt.Errorf("%w%w", ErrParked, ErrParked))

// defaultErrors are the errors that every definition knows by name. A definition appends to a copy.
var defaultErrors = slices.Clip(append(slices.Clone(storederror.Common),
	storederror.Name("idem.ErrMismatch", idem.ErrMismatch), storederror.Name("idem.ErrInProgress", idem.ErrInProgress),
	storederror.Name("idem.ErrTxEnded", idem.ErrTxEnded), storederror.Name("idem.ErrTxAborted", idem.ErrTxAborted),
	storederror.Name("operation.ErrTimeout", ErrTimeout), storederror.Name("operation.ErrNoBeat", ErrNoBeat),
	storederror.Name("operation.ErrParked", ErrParked), storederror.Name("operation.ErrCanceled", ErrCanceled),
	storederror.Name("operation.ErrNotHappened", ErrNotHappened), storederror.Name("operation.ErrUndone", ErrUndone),
	storederror.Name("operation.ErrUnknownOperation", ErrUnknownOperation), storederror.Name("operation.ErrInvalidName", ErrInvalidName),
	storederror.Name("operation.ErrValueTooLarge", ErrValueTooLarge), storederror.Name("operation.ErrMisused", ErrMisused),
	storederror.Name("", &ChildError{})))

// restore decodes a stored error. It fails if the error names one that the program no longer knows.
func restore(known storederror.Set, stored []byte) (restored, err error) {
	return known.Decode(stored, Final, func(r bridge.Response) error { return idem.Reject(idem.Response(r)) })
}
