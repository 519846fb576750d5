package outbox

import "sync"

// bell wakes a stream. To ring it costs next to nothing and never waits.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// The bells of the relays that run in this process, for Add inside of idem.Do: they are rung after the commit.
var (
	bellsMu sync.Mutex
	bells   = map[bell]int{}
)

// hang has the bell rung by each commit, until the function that it returns is called.
func (b bell) hang() (takeDown func()) {
	bellsMu.Lock()
	defer bellsMu.Unlock()
	bells[b]++
	return func() {
		bellsMu.Lock()
		defer bellsMu.Unlock()
		if bells[b]--; bells[b] == 0 {
			delete(bells, b)
		}
	}
}

// ringAll rings them when a transaction that has used Add is committed.
type ringAll struct{}

// Committed rings them.
func (ringAll) Committed() {
	bellsMu.Lock()
	defer bellsMu.Unlock()
	for b := range bells {
		b.ring()
	}
}
