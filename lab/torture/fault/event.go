package fault

import (
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// Workers are the processes to torture. Each runs in a slot, and the implementation starts another
// process in the slot of a process that was killed.
type Workers interface {
	Len() int
	// Signal sends a signal to the process in slot i.
	Signal(i int, sig syscall.Signal) error
	// Proxy returns the proxy that carries all connections of slot i. It outlives the process.
	Proxy(i int) *pgproxy.Proxy
}

// Target is what the faults break.
type Target struct {
	Cluster *cluster.Cluster // nil: no faults of sessions and of the server
	Workers Workers
}

// Event describes one fault, after it was healed or given up.
type Event struct {
	Kind   Name
	At     time.Duration // when it was injected, by the clock of package history
	For    time.Duration // from At until it was healed
	Worker int           // the slot of the affected worker, -1 for all
	Detail string
	Err    string // why it could not be injected or healed
	Hung   bool   // it did not end within its limits and was given up

	// Kills reports that the fault killed the process of the worker.
	Kills bool

	// Loses reports that writes which were acknowledged during the event may be lost. Keys and
	// effects are then lost together.
	Loses bool
	// MovesClock reports that the clock of the database was wrong during the event.
	MovesClock bool
}
