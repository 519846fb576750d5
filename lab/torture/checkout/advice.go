package checkout

import (
	"github.com/idem-go/idem/operation"
)

// What the documentation of the package advises.

// notSent is said of an attempt that has failed before anything was sent.
func notSent(err error) error { return operation.NotSent(err) }

// refused is what a person says who has heard that the other side has refused.
func refused(err error) operation.Finding { return operation.Refused(err) }

// known are the options by which a definition knows the errors of its program that are found by more than their text and fields.
func known() []operation.Option {
	return []operation.Option{operation.WithErrors(errNoFunds, &codeError{}, &softDecline{}, &opaqueDecline{})}
}
