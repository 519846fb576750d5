package outbox

import "sync"

// waker wakes the worker of a stream. Waking never blocks.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wakers are the wakers of all streams with a worker in this process. The commit of an idem.Do
// whose function has called Add wakes all of them.
var (
	wakersMu sync.Mutex
	wakers   = map[waker]bool{}
)

// listen adds w to wakers until the returned function is called.
func (w waker) listen() (end func()) {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	wakers[w] = true
	return func() {
		wakersMu.Lock()
		defer wakersMu.Unlock()
		delete(wakers, w)
	}
}

// wakeAll is a hook that is called when a transaction has committed.
type wakeAll struct{}

// Committed wakes all streams of the process.
func (wakeAll) Committed() {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	for w := range wakers {
		w.wake()
	}
}
