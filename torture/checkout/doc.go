// Package checkout is what a worker process does in a run of operations: it calls them, under keys that others call as well,
// runs a Worker that finishes what others have left, and sends signals. It knows nothing of faults and does not judge; it
// writes down what it did and what it was told.
//
//	worker.go    the process
//	caller.go    the calls, and what an answer means
//	shop.go      the operation
//	call.go      its calls of the bank
//	person.go    what people do about operations
//	finish.go    the end of a run, when nothing goes wrong any more
package checkout
