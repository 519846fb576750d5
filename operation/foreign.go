package operation

import (
	"errors"

	"github.com/idem-go/idem/internal/longcall"
)

// foreignError is an error of the function about another operation, which has ended, or is parked. The operation of the function goes
// on, so nothing may find in the error that this one has, or is.
type foreignError struct{ cause error }

// ofFunction returns an error with which the function has ended a run, and not the operation.
func ofFunction(err error) error {
	var ended longcall.ForDuplicates
	if errors.As(err, &ended) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrParked) {
		return &foreignError{cause: err}
	}
	return err
}

func (e *foreignError) Error() string { return e.cause.Error() }

func (e *foreignError) Is(target error) bool {
	return target != ErrCancelled && target != ErrParked && errors.Is(e.cause, target)
}

func (e *foreignError) As(target any) bool {
	switch target.(type) {
	case **ParkedError, **cancelledError, **endedError, *longcall.ForDuplicates:
		return false
	}
	return errors.As(e.cause, target)
}
