// Package workload is the program of a worker process. It makes many concurrent calls on few keys,
// chosen from a seed so that everything that can happen to a call does happen. It knows nothing of
// the faults and does not judge. It records what it did and which answers it got.
//
//	config.go      the configuration from the supervisor
//	worker.go      the process
//	plan.go        chooses the next call
//	call.go        makes one call, from its plan to its outcome
//	batch.go       makes many calls of DoTx in one transaction
//	commit.go      a COMMIT of the worker itself
//	fn.go          the function of a call
//	answer.go      the body of a response
//	outcome.go     turns an answer into an outcome
//	pool.go        the connections
//	purge.go       purges expired records meanwhile
//	operations.go  a worker of package checkout
//	messages.go    a worker of package messaging
package workload
