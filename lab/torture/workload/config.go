package workload

import "time"

// Config is what a worker is told by its supervisor, as JSON on its standard input. The worker lives no longer than that
// input is open.
type Config struct {
	Slot, Incarnation int
	Seed              uint64
	Start             time.Duration // of the run, by the history's clock: from it follow the keys in use
	File              string        // the history to make
	DSN               string
	Pooled            bool // DSN leads to a pooler in transaction mode
	Prepares          bool // and prepared statements work behind it
	Goroutines        int
	Keys              int           // in use at one time, in each scope
	KeyLife           time.Duration // for how long they are in use
	Ops               int           // after which the worker ends by itself, without limit if 0

	Bank   string        // the address of the bank, of a worker that works on operations: see package checkout
	Broker string        // the address of the broker, of a worker that works on messages: see package messaging
	Quiet  bool          // of one that works on messages: it does as on an ordinary day
	Direct bool          // the same: without a broker
	Finish time.Duration // for how long at most it is to finish what others have left, and nothing else
}
