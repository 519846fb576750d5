// Package audit decides whether every promise of package operation was kept in a run, from what the workers and the bank have
// written down and from what is in the database. It shares no code with the library.
//
//	take.go     what is in the database
//	book.go     all that is known of a run, by operation
//	effects.go  what was done: by the bank, and in Postgres
//	undo.go     which undos must have run, in which order, and what may not be done any more
//	charge.go   which charges stand, and what the answer says of them
//	begun.go    calls that were begun, and what functions make of what steps return
//	moves.go    how operations change hands: what is kept, and why they are parked
//	anew.go     what calls begin
//	woken.go    whether somebody goes on with what was taken up
//	ending.go   how operations end, and what callers are told
//	owner.go    who works on them
package audit
