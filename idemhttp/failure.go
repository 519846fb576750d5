package idemhttp

import (
	"errors"
	"reflect"

	"github.com/idem-go/idem"
)

// origin is the place where an error arose. The meaning of an error depends on it: invalid JSON is
// the client's fault if the fingerprint finds it in the body, but not if a handler returns it.
type origin string

const (
	inScope       origin = "Config.Scope"
	inKey         origin = "key"
	inBody        origin = "body"
	inFingerprint origin = "Config.Fingerprint"
	inInput       origin = "OperationConfig.Input"
	inOperation   origin = "operation" // the function of the operation returned a Problem
	inHandler     origin = "handler"
	inAnswer      origin = "answer" // the answer of the handler cannot be recorded
	inProtocol    origin = "protocol"
	inAuthorize   origin = "Config.Authorize"
	inEngine      origin = "transaction" // idem.Do, idem.Lookup, or the transaction of a request without a key
)

// failure is an error with its origin. It is an error itself, so that an error of the handler keeps
// its origin on its way through idem.Do.
type failure struct {
	origin origin
	err    error
}

// failureOf returns err as a failure. An error that is not a failure comes from idem.Do, even if it
// wraps a failure.
func failureOf(err error) *failure {
	if f, ok := err.(*failure); ok {
		return f
	}
	return &failure{inEngine, err}
}

func (f *failure) Error() string { return f.err.Error() }

// Is and As let idem.Do recognize a serialization failure, and let an observer see the error.

func (f *failure) Is(target error) bool { return errors.Is(f.err, target) }

// As hides an error of idem.Reject that the handler has returned. Only Config.Decide decides which
// answers are recorded. Without As, idem.Do would record the response in that error, although the
// client gets another one.
func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.err, target)
}

// rejection is the type that errors.As gets when idem.Do looks for a rejection.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))
