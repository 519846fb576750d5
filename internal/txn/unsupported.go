package txn

import (
	"errors"
	"fmt"
)

// ErrUnsupported says that the server, or a pooler in front of it, has not got what a statement of the library needs.
var ErrUnsupported = errors.New("idem: the server does not have what this needs")

// UnsupportedError is the ErrUnsupported of one statement.
type UnsupportedError struct {
	Err error // what the server has answered
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: %v; docs/portability.md says which servers have it, and what works without", ErrUnsupported, e.Err)
}

// Unwrap makes errors.Is(err, ErrUnsupported) true and keeps the answer of the server within reach.
func (e *UnsupportedError) Unwrap() []error { return []error{ErrUnsupported, e.Err} }

// Lacking makes an UnsupportedError of an error by which a server refuses a statement of the library for good: it does not know a
// function, or has not got a feature. Only what requests have met may be given to it: fn may ask for what no server has.
func Lacking(err error) error {
	const undefinedFunction, featureNotSupported = "42883", "0A000"
	const planChanged = "RevalidateCachedQuery" // the same state, and a new connection prepares the statement afresh
	if !HasCode(err, undefinedFunction, featureNotSupported) || pgError(err).Routine == planChanged {
		return err
	}
	return &UnsupportedError{Err: err}
}

// Answered takes back what Lacking has made of an error: it is for requests that have the server run what is not the library's, such as a
// trigger that is deferred.
func Answered(err error) error {
	if lacking, is := errors.AsType[*UnsupportedError](err); is {
		return lacking.Err
	}
	return err
}
