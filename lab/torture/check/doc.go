// Package check decides whether a run kept the promises of the library, from its history and from what was found in the
// database afterwards, and from nothing else. It looks at each (scope, key) by itself:
//
//   - key.go gathers what is known of it, execution.go brings together the sightings of one execution: its effect, its
//     record, the answer to the call that made it, and every replay.
//   - rule.go holds what can be said without regard to order: an error means that nothing was committed, an answer has
//     its effect, a replay is equal to the response that was committed, retention periods do not overlap.
//   - model.go leaves the rest to porcupine: is there one order of all answers, in keeping with the clock, in which each
//     is right? A call that never returned may have happened at any time after it began, or not at all.
//
// What the database shows by itself, such as an effect without its record, was found by package ledger, and is reported
// here with the rest.
package check
