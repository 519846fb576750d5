package workload

import "time"

// Config is the configuration of a worker. The supervisor sends it as JSON to the standard input of
// the worker. The worker exits when that input is closed.
type Config struct {
	Slot, Incarnation int
	Seed              uint64
	Start             time.Duration // start of the run, by the clock of package history
	File              string        // the history to write
	DSN               string
	Pooled            bool // DSN is that of a pooler in transaction mode
	Prepares          bool // the pooler supports prepared statements
	Goroutines        int
	Keys              int           // in use at one time, in each scope
	KeyLife           time.Duration // how long a key is in use
	Ops               int           // the number of calls after which the worker exits; 0: no limit

	Bank   string        // address of the bank; selects package checkout
	Broker string        // address of the broker; selects package messaging
	Quiet  bool          // for messages: inject no failures
	Direct bool          // for messages: without a broker
	Finish time.Duration // only finish what other workers left, for at most this time
}
