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
	// errors.As finds a *ParkedError with the details.
	ErrParked = errors.New("operation: parked")

	// ErrTimeout is the error of Await if the signal was not sent within the timeout.
	ErrTimeout = errors.New("operation: no signal came in time")

	// ErrNotHappened is the Final error of a call that has not happened and will not be made. The
	// function gets it if a person has resolved the call with NotHappened. The function also gets
	// this error if the operation is being undone and later steps are recorded.
	ErrNotHappened = errors.New("operation: the call has not happened, and will not be made")

	// ErrCanceled is the error of an operation that was canceled and is undone.
	ErrCanceled error = &endedError{cause: errors.New("operation: canceled, and undone")}

	// ErrUndone is the error of waiting for an operation that was canceled or ended in a Final
	// error. Its steps are undone, and its key is free.
	ErrUndone = errors.New("operation: ended in an error, and undone")

	// ErrAnswerGone is the error of waiting for an operation that has ended with an answer. The
	// answer has expired since, or the key was used again.
	ErrAnswerGone = errors.New("operation: ended, and the answer has expired")

	// ErrNotParked is the error of Retry and Resolve if the operation is not parked. Resolve also
	// returns it if the call is not in doubt. Cancel returns it if the operation has ended and was
	// not canceled.
	ErrNotParked = errors.New("operation: not parked, or not at a call in doubt")

	// ErrUnsealed is the error of Signal if the input of the operation is sealed, and the caller
	// has passed no Sealer. The signal was not sent.
	ErrUnsealed = errors.New("operation: Signal needs the Sealer of the operation: pass it by idem.WithSealer")

	// ErrMisused is the error of using an Op after its function has returned, from two goroutines
	// at once, or inside of a step. It is also the error of Calls whose methods are not called in
	// the order Go, Wait, Value.
	ErrMisused = errors.New("operation: misuse of an Op or of Calls: take steps one after the other, inside the function of the operation")
)

// errCancelNoticed stops a run if the operation was canceled during the run.
var errCancelNoticed = errors.New("operation: canceled while it was in progress")

// endedError is the error in which an operation has ended. Every call that waited for the operation
// returns it instead of beginning a new operation.
type endedError struct{ cause error }

func (e *endedError) Error() string { return e.cause.Error() }
func (e *endedError) Unwrap() error { return e.cause }

// ForDuplicates makes all calls that wait for the operation return the error.
func (*endedError) ForDuplicates() {}

// foreignError is an error of the function about another operation, which has ended or is parked.
// The function's own operation continues. errors.Is and errors.As therefore do not find
// ErrCanceled, ErrParked and their types in a foreignError. A caller would otherwise conclude that
// the function's own operation was canceled or is parked.
type foreignError struct{ cause error }

// runError returns err for the caller of a run. If err says that an operation has ended or is
// parked, it is about another operation, and runError returns it as a foreignError.
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
	OperationID string         // the id of the child
	Canceled    bool           // the child was canceled
	Rejected    *idem.Response // the response of a child that ended in idem.Reject; otherwise nil
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

// Is makes errors.Is(err, ErrUndone) true if the child was canceled or ended in a Final error.
func (e *ChildError) Is(target error) bool { return target == ErrUndone && e.Rejected == nil }

// Reason is why an operation is parked, as a code for programs and alerts.
// docs/operations-reference.md says what to do about each.
type Reason string

// The reasons for which an operation parks.
const (
	ReasonCallInDoubt       Reason = "call_in_doubt"      // a call may have happened, and must not be repeated
	ReasonAttemptsExhausted Reason = "attempts_exhausted" // the attempts or the time of a call in doubt, or the attempts of an undo, are used up
	ReasonCodeChanged       Reason = "code_changed"       // the steps or undos in the code differ from the recorded ones
	ReasonValueUnreadable   Reason = "value_unreadable"   // a recorded value does not decode, or the value of a call cannot be stored
	ReasonSignalUnreadable  Reason = "signal_unreadable"  // a signal does not decode
	ReasonUndoFailed        Reason = "undo_failed"        // an undo has returned an error that is not retried
	ReasonTxEnded           Reason = "tx_ended"           // the fn of a step has committed or rolled back its transaction
	ReasonFunctionFailed    Reason = "function_failed"    // the operation was canceled, and its function fails before its last recorded step
	ReasonTooManyDeaths     Reason = "too_many_deaths"    // too many processes in a row died while they worked on the operation
)

// ParkedError says which operation is parked, at which step, and why. errors.Is finds ErrParked in
// it.
type ParkedError struct {
	OperationID string
	Step        string // the step at which the operation is parked
	Reason      Reason
	ReasonText  string
	Since       time.Time // when the step was begun, by the database's clock; zero if not known
	Cause       error     // the error that made the operation park; nil if the operation was parked before the call
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("%v: operation %s at step %q: %s", ErrParked, e.OperationID, e.Step, e.ReasonText)
}

// Unwrap makes errors.Is(err, ErrParked) true.
func (e *ParkedError) Unwrap() error { return ErrParked }

// stop is the reason why a run takes no further step. Every later step of the run returns the stop
// as its error. The stop decides how the run ends, even if the function ignores the error.
type stop struct {
	kind      stopKind
	err       error
	uncounted bool // for stopRerun: the next run does not count as a retry

	// The other fields are for stopParked.
	reason  Reason
	step    string // the step at which the operation parks
	text    string
	cause   error // the error that makes the operation park; may be nil
	attempt int   // the number of the attempt that returned the cause; 0 if no attempt did
}

type stopKind int

const (
	stopRerun      stopKind = iota // the function runs again from the record, because the transaction is lost or a Cancel has arrived
	stopLost                       // another process has claimed the operation
	stopSuspended                  // the operation is released until it is due
	stopCallerLeft                 // the context of the caller has ended
	stopParked                     // a person must decide
	stopUnknown                    // the first COMMIT was not acknowledged: package idem looks for the record
	stopFailed                     // the run fails with err
	stopUnwound                    // the function does not continue, and the done steps are undone
)

// parked returns a stop that parks the operation at a step.
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
// same outcome. A declined card is an example. The function of the operation gets the error, and
// may continue with other steps. If the function returns the error, the operation is undone, its
// key is free, and the callers get the error.
//
// A Final error is the answer of the other system for the key of the call, so it also settles
// earlier attempts in doubt. For an error that does not come from the other system, such as the
// failure of a check before the request, use Final(NotSent(err)).
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{cause: err}
}

// Unknown returns an error that says that the outcome of an attempt is in doubt, because its answer
// was lost. The Policy of the call says what follows. An error that is neither Final nor NotSent
// nor Unknown has the same effect.
//
// If Unknown, Final and NotSent wrap each other, the outermost counts. The result of errors.Join is
// in doubt if one of the joined errors is Unknown, or is none of the three. The result of
// fmt.Errorf with several %w is one error: only the wrapped errors count that are Unknown, Final or
// NotSent.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{cause: err}
}

// NotSent returns an error that says that this attempt was not sent, because the connection failed
// or a circuit breaker was open. The call is tried again after its backoff, whatever its policy is.
// The error says nothing about earlier attempts: if one of them is in doubt, it stays in doubt.
//
// Final(NotSent(err)) says that this attempt was not sent, and that no attempt ever will be. For
// example, the program itself refuses the amount. The function gets the error, unless an earlier
// attempt is in doubt. The earlier attempt is then settled first, as the policy says.
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

// meaning is what an error says about the attempt that returned it. The zero value says nothing,
// and leaves the attempt in doubt.
type meaning struct{ final, unsent, unknown bool }

// meaningOf returns what err says about the attempt that returned it. If Final, NotSent and Unknown
// wrap each other, the outermost counts. Joined errors count as Unknown if one of them is Unknown,
// or is none of the three: the attempt may then have been sent. fmt.Errorf with several %w makes
// one error, so wrapped errors that are none of the three are ignored.
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

// defaultErrors are the errors that every definition knows without WithErrors. A definition appends
// to a copy of the slice.
var defaultErrors = slices.Clip(append(slices.Clone(storederror.Common),
	storederror.Name("idem.ErrMismatch", idem.ErrMismatch), storederror.Name("idem.ErrInProgress", idem.ErrInProgress),
	storederror.Name("idem.ErrTxEnded", idem.ErrTxEnded), storederror.Name("idem.ErrTxAborted", idem.ErrTxAborted),
	storederror.Name("operation.ErrTimeout", ErrTimeout), storederror.Name("operation.ErrNoBeat", ErrNoBeat),
	storederror.Name("operation.ErrParked", ErrParked), storederror.Name("operation.ErrCanceled", ErrCanceled),
	storederror.Name("operation.ErrNotHappened", ErrNotHappened), storederror.Name("operation.ErrUndone", ErrUndone),
	storederror.Name("operation.ErrUnknownOperation", ErrUnknownOperation), storederror.Name("operation.ErrInvalidName", ErrInvalidName),
	storederror.Name("operation.ErrValueTooLarge", ErrValueTooLarge), storederror.Name("operation.ErrMisused", ErrMisused),
	storederror.Name("", &ChildError{})))

// restore decodes a stored error. It fails if the program no longer knows one of the registered
// errors in it.
func restore(known storederror.Set, stored []byte) (restored, err error) {
	return known.Decode(stored, Final, func(r bridge.Response) error { return idem.Reject(idem.Response(r)) })
}
