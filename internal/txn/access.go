package txn

import (
	"context"
	"slices"
	"sync"
)

// access is the time during which fn may use the transaction. The savepoints begun on it share it.
type access struct {
	name string          // what ExecutionID tells of it
	ctx  context.Context // what ContextOf tells of it, nil if there is none

	mu        sync.Mutex
	users     int    // methods that are running
	over      bool   // fn has returned
	endedByFn bool   // fn called Commit or Rollback
	whenIdle  func() // called when the last user leaves
	committed []Witness
}

// enter reports whether the transaction may be used. If so, leave must follow.
func (a *access) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.users++
	}
	return !a.over
}

func (a *access) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users--
	if a.users == 0 && a.whenIdle != nil {
		a.whenIdle()
	}
}

// ended reports whether fn has called Commit or Rollback.
func (a *access) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endedByFn
}

// end makes the tx dead. It reports false if a method of it is still running in some goroutine that fn left behind: nothing
// may touch the connection then until it has left.
func (a *access) end() (idle bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	return a.users == 0
}

// afterUse calls f when nothing uses the transaction any more, which may be now.
func (a *access) afterUse(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 0 {
		f()
		return
	}
	a.whenIdle = f
}

// Witness is told of a commit. It returns at once, and is comparable.
type Witness interface{ Committed() }

// tell tells w of the commit, however often it asks for it.
func (a *access) tell(w Witness) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.committed, w) {
		a.committed = append(a.committed, w)
	}
}

// witnesses returns who wants to be told.
func (a *access) witnesses() []Witness {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed
}
