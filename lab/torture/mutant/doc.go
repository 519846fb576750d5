// Package mutant tests the torture. Each [Mutant] is the library with one promise broken on
// purpose. A run that does not find the violation shows a defect of the torture.
//
// The library contains no code for this. A mutant consists of edits of its source, which exist only
// during the build (go build -overlay). An edit names a declaration and the code to replace in it:
// an expression, statements, or words of SQL. If that code is not in the declaration exactly once,
// the mutant no longer applies and must be adapted. A declaration may move to another file, and the
// code may move within its declaration.
//
// make torture/mutants tries all mutants. make torture/sample, of which CI runs a half, tries one
// for each promise: of the mutants with the same first rule, the first that is not Slow.
//
// To add a mutant:
//
//  1. Choose the file that its promise belongs to (claim.go, commit.go, fn.go, memory.go, seal.go,
//     server.go, purge.go, operation.go, message.go) and add a Mutant: a Name, About in one line,
//     and Edits, each with a declaration, the code to replace, and the new code.
//  2. Faults are the faults of package fault that reveal it, none if duplicates alone do. Rules
//     are rules of package rule, of which a run must find one broken. Name the rules that the edit
//     breaks, not every rule that a run reports.
//  3. go test -short ./mutant checks that every edit applies and compiles. Run it after every
//     change of the library too.
//  4. go run . mutants -v -mutant NAME prints the rules that were found broken. A mutant that
//     survives needs another fault, a longer Duration, or a new rule: its name in rule/rule.go, its
//     check in package check, and a history that breaks it in check_test.go.
//  5. make generate writes it into docs/evidence.md.
package mutant
