// Package mutant tests the torture: each [Mutant] is the library with one promise broken on purpose, by an edit of its
// source that exists only while it is built. A run that does not find fault with a mutant is a defect of the torture.
//
// There is nothing of this in the library: an edit is laid over its files by go build -overlay. It names the
// declaration that it changes, and in there an expression, statements or some words of SQL. When these are not there exactly once, the
// mutant no longer applies and has to be looked at. A declaration may move to another file, and its code to another place in it.
//
// make torture/mutants tries all of them. make torture/sample, which CI calls, tries one for each promise: the first mutant
// that is not Slow, of those with the same first rule.
//
// To add one:
//
//  1. Choose the file that its promise belongs to (claim.go, commit.go, fn.go, memory.go, seal.go, server.go, purge.go, operation.go) and add a Mutant there:
//     a Name, About in one line, and Edits, each a declaration, the code in it that is replaced, and what to put in its place.
//  2. Faults are those of package fault that bring it to light, none if duplicates alone do. Rules are those of package rule
//     of which a run has to find one broken: what your edit breaks, and not whatever else comes to light.
//  3. go test -short ./mutant says in a second whether every edit fits, which is also what to run after a change of the library.
//  4. go run . mutants -v -mutant NAME says which rules were found broken. One that survives needs another fault, a longer
//     Duration, or a new rule: its name in rule/rule.go, the check in package check, a history that breaks it in check_test.go.
//  5. Add its row to README.md.
package mutant
