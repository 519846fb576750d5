package checkout

import (
	"github.com/idem-go/idem/operation"
)

// The functions below follow the advice of the documentation of package operation.

// notSent marks the error of an attempt that failed before anything was sent.
func notSent(err error) error { return operation.NotSent(err) }

// refused is the finding of a person who learned that the bank refused the call.
func refused(err error) operation.Finding { return operation.Refused(err) }

// known returns the options that let a definition recognize errors by more than text and fields.
func known() []operation.Option {
	return []operation.Option{operation.WithErrors(errNoFunds, &codeError{}, &softDecline{}, &opaqueDecline{})}
}
