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

// failure is an error together with its origin. It is passed through idem.Do as an error, so that
// an error of the handler keeps its origin.
type failure struct {
	origin origin
	err    error
}

// failureOf returns err itself if err is a *failure. Any other error comes from idem.Do, even if it
// wraps a *failure, and gets the origin inEngine.
func failureOf(err error) *failure {
	if f, ok := err.(*failure); ok {
		return f
	}
	return &failure{inEngine, err}
}

func (f *failure) Error() string { return f.err.Error() }

// Is and As let idem.Do and observers find the wrapped error, such as a serialization failure.

func (f *failure) Is(target error) bool { return errors.Is(f.err, target) }

// As hides an error of idem.Reject from idem.Do, because only Config.Decide decides which answers
// are recorded. Otherwise, if a handler returned such an error, idem.Do would record the response
// in the error, and the client would get a different answer.
func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.err, target)
}

// rejection is the type of the pointer that idem.Do passes to errors.As in order to find an error
// of idem.Reject.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))
