// Package idemvet finds uses of idem that compile but lose a guarantee: an effect outside of the
// transaction, a call to another service inside it, a key that differs between the attempts of a
// request.
//
// [Analyzers] returns analyzers for golang.org/x/tools/go/analysis. The command idemvet runs them,
// alone or under go vet. The analyzers need type information. They recognize functions of idem by
// package path. They examine a function that a program passes to idem only if the function is
// declared in the package that makes the call.
package idemvet

import "golang.org/x/tools/go/analysis"

// Analyzers returns the analyzers of all rules.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{Outside, Callout, Kept, Ended, Key, Final, Replay, Ignored, Deadline}
}
