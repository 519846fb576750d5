// Package checkout is what a worker process does in a run of operations: it calls them, under keys that others call as well,
// runs a Worker that finishes what others have left, and sends signals. It knows nothing of faults and does not judge; it
// writes down what it did and what it was told.
//
//	worker.go    the process
//	caller.go    the calls, and what an answer means
//	watch.go     what a call tells while it is made
//	shop.go      the operation
//	call.go      its calls of the bank
//	refusal.go   the errors with which cards are declined
//	day.go       what else a function does on an ordinary day
//	advice.go    what the documentation of package operation advises
//	person.go    what people do about operations
//	recent.go    which operations they look at
//	finish.go    the end of a run, when nothing goes wrong any more
package checkout
