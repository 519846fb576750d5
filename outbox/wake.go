package outbox

import "sync"

// Relays that run in this process, for Add inside of idem.Do: they are told after the commit.
var (
	runningMu sync.Mutex
	running   = map[*Relay]int{}
)

func (r *Relay) appear(n int) {
	runningMu.Lock()
	defer runningMu.Unlock()
	if running[r] += n; running[r] == 0 {
		delete(running, r)
	}
}

// wakeAll wakes them when a transaction that has used Add is committed.
type wakeAll struct{}

// Committed wakes them.
func (wakeAll) Committed() {
	runningMu.Lock()
	defer runningMu.Unlock()
	for r := range running {
		r.Wake()
	}
}

// Wake tells the relay that there may be something to publish, so that it looks at once: call it after the commit of a
// transaction that has used Add. It costs next to nothing and never waits. Without it, the relay finds out by itself within
// RelayConfig.Poll. Inside of idem.Do it is not needed: relays of the same process are told when Do has committed.
func (r *Relay) Wake() {
	for _, s := range r.streams {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
