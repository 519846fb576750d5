package checkout

import (
	"github.com/idem-go/idem/operation"
)

// What the documentation of the package advises, where it may advise otherwise one day.

// notSent is said of an attempt that has failed before anything was sent.
func notSent(err error) error { return operation.Final(err) }

// refused is what a person says who has heard that the other side has refused.
func refused(error) operation.Finding { return operation.NotHappened }

// known are the options by which a definition knows the types of errors of its program.
func known() []operation.Option { return nil }
