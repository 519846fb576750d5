// Package inquiry decides whether a run kept every promise of packages outbox and inbox. Its
// sources are the files that the workers and the broker wrote, and the final state of the database.
// It shares no code with the library.
//
//	take.go      reads the database
//	file.go      collects everything that is known of a run, by letter
//	publish.go   what became of the letters in the outbox
//	effect.go    what became of the published letters
//	late.go      how soon letters are published
//	told.go      the outcomes that consumers got
//	direct.go    the same for a run without a broker
package inquiry
