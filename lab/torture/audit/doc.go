// Package audit decides whether a run kept every promise of package operation. Its sources are the
// files that the workers and the bank wrote, and the final state of the database. It shares no code
// with the library.
//
//	take.go      reads the database
//	book.go      collects everything that is known of a run, by operation
//	effects.go   what was done at the bank and in Postgres
//	undo.go      which undos must have run and in which order, and what must not run after them
//	charge.go    which charges stand, and what the answer says of them
//	begun.go     calls that were begun, and what functions see of the results of steps
//	children.go  child operations
//	moves.go     what is recorded when an operation is released, and why operations are parked
//	anew.go      calls that took part in a canceled operation
//	woken.go     whether claimed operations are worked on
//	ending.go    how operations end, and the answers of their callers
//	owner.go     whether one process at a time works on an operation
package audit
