// Package workload is what a worker process does: many calls at once on few keys, chosen from a seed so that everything
// that can happen to a call does. It knows nothing of faults and does not judge; it writes down what it did and what it
// was told.
//
//	config.go   what a worker is told by its supervisor
//	worker.go   the process
//	plan.go     what the next call will be
//	call.go     one call, from its plan to its outcome
//	batch.go    many calls of DoTx in one transaction
//	commit.go   a COMMIT of the worker's own
//	fn.go       what the call's function does
//	answer.go   what is in a response
//	outcome.go  what an answer means
//	pool.go     the connections
//	operations.go  the worker as one of package checkout
package workload
