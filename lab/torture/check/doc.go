// Package check decides whether a run kept the promises of the library. Its only sources are the
// history of the calls and the final state of the database. It checks each (scope, key) by itself:
//
//   - key.go gathers everything that is known of a key. execution.go joins all observations of
//     one execution: its effect, its record, the answer to the call that made it, every replay.
//   - rule.go checks the rules that do not depend on the order of the answers. For example, an
//     error means that nothing was committed, a replay equals the committed response, and
//     retention periods do not overlap.
//   - model.go checks the rest with porcupine: is there one order of all answers that agrees with
//     the clock and in which each answer is right? A call that never returned may have happened
//     at any time after it began, or not at all.
//
// Package ledger finds what is wrong in the database alone, such as an effect without its record.
// This package adds those findings to its result.
package check
