package presence

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// Watcher connects a Worker with the guard of its session.
type Watcher struct {
	due   chan struct{}          // has a value if the Worker is to look for due operations
	watch chan struct{}          // has a value if the guard loop is to look
	knows func(name string) bool // whether it has the definition of that name
	full  atomic.Bool            // the Worker has no room
}

// NewWatcher returns the watcher of a Worker. knows reports whether the Worker has the definition of a name.
func NewWatcher(knows func(name string) bool) *Watcher {
	return &Watcher{due: make(chan struct{}, 1), watch: make(chan struct{}, 1), knows: knows}
}

// Run makes the process a candidate for guard until ctx ends. A guard looks once a turn.
func (s *Watcher) Run(ctx context.Context, engine *txn.Engine, turn time.Duration) {
	(&guardLoop{engine, s, min(guardLists, turn)}).run(ctx)
}

// Due has a value when the Worker is to look for what is due.
func (s *Watcher) Due() <-chan struct{} { return s.due }

// SetFull says whether the Worker has no room for what is due.
func (s *Watcher) SetFull(full bool) {
	if !s.full.Swap(full) && full {
		poke(s.watch)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A guard notifies all processes of the names of due operations that its own Worker does not take over, or of anyName if the names are
// too long. busyAgain has the other guard watch owners again, and guardWanted says that a place is free. Only guards notify, about once
// a second: Postgres commits notifying transactions one after the other, so no commit of an operation may be one.

const (
	guardWanted     = ""
	anyName         = "#" // no definition has that name
	busyAgain       = "#busy"
	maxNotification = 7900
)

// notified handles a notification of a guard.
func (s *Watcher) notified(names string) {
	switch {
	case names == guardWanted, names == busyAgain:
		poke(s.watch)
	case names == anyName || slices.ContainsFunc(strings.Split(names, "\n"), s.knows):
		poke(s.due)
	}
}
