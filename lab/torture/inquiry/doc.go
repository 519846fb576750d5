// Package inquiry decides whether every promise of packages outbox and inbox was kept in a run, from what the workers and the
// broker have written down and from what is in the database. It shares no code with the library.
//
//	take.go      what is in the database
//	file.go      all that is known of a run, by letter
//	publish.go   the outcome of what was put into the outbox
//	effect.go    the outcome of what was published
//	told.go      what consumers were told
//	direct.go    the same of a run without a broker
package inquiry
