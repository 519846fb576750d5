// Package checkout is the program of a worker process in a run of operations. It calls operations
// under keys that other processes call too, runs a Worker that finishes what others have left, and
// sends signals. It knows nothing of the faults and does not judge. It logs what it did and which
// answers it got.
//
//	worker.go    the process
//	caller.go    the calls, and what an answer means
//	watch.go     logs calls that wait
//	shop.go      the function of the operation
//	call.go      its calls to the bank
//	part.go      its child operations
//	refusal.go   the errors with which cards are declined
//	day.go       changes and failures that need no fault
//	advice.go    what the documentation of package operation advises
//	person.go    what people do about operations
//	recent.go    the operations that they look at
//	backlog.go   keeps the queue of operations short
//	finish.go    the end of a run, without faults
package checkout
