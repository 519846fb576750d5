package outbox

import "sync"

// waker wakes a stream. To use it costs next to nothing and never waits.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

func (b waker) wake() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// The wakers of the relays that run in this process, for Add inside of idem.Do: each commit wakes them.
var (
	wakersMu sync.Mutex
	wakers   = map[waker]int{}
)

// listen has each commit wake the stream, until the function that it returns is called.
func (b waker) listen() (end func()) {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	wakers[b]++
	return func() {
		wakersMu.Lock()
		defer wakersMu.Unlock()
		if wakers[b]--; wakers[b] == 0 {
			delete(wakers, b)
		}
	}
}

// wakeAll wakes the streams when a transaction that has used Add is committed.
type wakeAll struct{}

// Committed wakes them.
func (wakeAll) Committed() {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	for b := range wakers {
		b.wake()
	}
}
