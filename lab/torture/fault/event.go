package fault

import (
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// Workers are the processes to torture, each in a slot of its own. Whoever keeps them starts another process where one
// was killed.
type Workers interface {
	Len() int
	// Signal sends a signal to the process that is in slot i.
	Signal(i int, sig syscall.Signal) error
	// Proxy is what all connections of slot i go through, whichever process is in it.
	Proxy(i int) *pgproxy.Proxy
}

// Target is what is broken.
type Target struct {
	Cluster *cluster.Cluster // nil: sessions and servers are left alone
	Workers Workers
}

// Event tells of one fault, after it has been healed.
type Event struct {
	Kind   Name
	At     time.Duration // when it struck, by the history's clock
	For    time.Duration // until it was healed
	Worker int           // the slot that it was for, -1 if it was for all
	Detail string
	Err    string // what kept it from being injected or healed
	Hung   bool   // it did not end, and was given up

	// Kills says that the process of the worker was killed.
	Kills bool

	// Loses says that what was acknowledged meanwhile may be lost, keys and effects together.
	Loses bool
	// MovesClock says that the clock of the database was wrong meanwhile.
	MovesClock bool
}
