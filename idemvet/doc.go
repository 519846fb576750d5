// Package idemvet finds programs that use idem in a way which the compiler lets pass and which loses a promise: an effect outside of the transaction, a
// call of another service inside of it, a key that each attempt has anew.
//
// [Analyzers] are for go vet, by the command idemvet, and for whatever else runs analyzers of golang.org/x/tools. What they look at is typed code: they
// know the functions of idem by their packages, and the functions that a program gives them wherever in the same package those are.
package idemvet

import "golang.org/x/tools/go/analysis"

// Analyzers are all that this package has, each a rule of its own.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{Outside, Callout, Kept, Ended, Key, Final, Replay, Ignored, Deadline}
}
