package idemhttp

import (
	"errors"
	"reflect"

	"github.com/idem-go/idem"
)

// origin says where in the course of a request an error arose. What an error means for the client depends on that first:
// invalid JSON is the client's fault if the fingerprint finds it in the body, and not if a handler returns it.
type origin string

const (
	inScope       origin = "Config.Scope"
	inKey         origin = "key"
	inBody        origin = "body"
	inFingerprint origin = "Config.Fingerprint"
	inInput       origin = "OperationConfig.Input"
	inOperation   origin = "operation" // its function has returned a Problem
	inHandler     origin = "handler"
	inAnswer      origin = "answer" // what the handler has written cannot be recorded
	inProtocol    origin = "protocol"
	inAuthorize   origin = "Config.Authorize"
	inEngine      origin = "transaction" // idem.Do, idem.Lookup, or the transaction of a request without a key
)

// failure is an error with its origin. It is an error itself so that what a handler returns is marked before it enters
// idem.Do, which passes it on, and is told from the errors of idem.Do when it leaves.
type failure struct {
	origin origin
	err    error
}

// failureOf returns the failure of a run. What is not marked was made by the engine, perhaps around one that is.
func failureOf(err error) *failure {
	if f, ok := err.(*failure); ok {
		return f
	}
	return &failure{inEngine, err}
}

func (f *failure) Error() string { return f.err.Error() }

// Is and As show the error to idem.Do, which runs a handler again after a serialization failure, and to an observer.

func (f *failure) Is(target error) bool { return errors.Is(f.err, target) }

// As hides what idem.Reject returns. A handler answers, and Config.Decide decides: a rejection of its own would be recorded
// and never sent.
func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.err, target)
}

// rejection is the type that errors.As looks for when it looks for a rejection.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))
