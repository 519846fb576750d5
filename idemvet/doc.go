// Package idemvet finds uses of idem that compile but lose a guarantee: an effect outside of the
// transaction, a call to another service inside it, a key that differs between attempts.
//
// [Analyzers] returns analyzers for golang.org/x/tools/go/analysis. The command idemvet runs them,
// alone or under go vet. The analyzers need type information. They recognize functions of idem by
// package path, and follow the functions that a program passes to idem as long as those are
// declared in the same package.
package idemvet

import "golang.org/x/tools/go/analysis"

// Analyzers returns all analyzers of this package.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{Outside, Callout, Kept, Ended, Key, Final, Replay, Ignored, Deadline}
}
