package presence

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// Watcher is a Worker as the guard of its session knows it.
type Watcher struct {
	due   chan struct{}          // has a value if it is to look for what is due
	watch chan struct{}          // has a value if a guard is to look what there is to watch
	knows func(name string) bool // whether it has the definition of that name
	full  atomic.Bool            // it has no room for what is due
}

// NewWatcher returns the watcher of a Worker. knows reports whether the Worker has the definition of a name.
func NewWatcher(knows func(name string) bool) *Watcher {
	return &Watcher{due: make(chan struct{}, 1), watch: make(chan struct{}, 1), knows: knows}
}

// Run has the process be one of the guards, until ctx ends. A guard looks once a turn.
func (s *Watcher) Run(ctx context.Context, engine *txn.Engine, turn time.Duration) {
	(&lookout{engine, s, min(guardLists, turn)}).run(ctx)
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

// What a guard finds and its own Worker does not take up, it tells all processes that listen: the names of the operations, everyNames if
// they are too many, busyNames if operations are under way again, which the other guard watches too, and wantedNames if a guard is wanted.
// Only a guard does so, about once a second at most: Postgres commits transactions that notify one after the other, so no commit of an
// operation is one of them.

const (
	wantedNames = ""
	everyNames  = "#" // no definition has that name
	busyNames   = "#busy"
	tellable    = 7900
)

// hear is told what a guard has told.
func (s *Watcher) hear(names string) {
	switch {
	case names == wantedNames, names == busyNames:
		poke(s.watch)
	case names == everyNames || slices.ContainsFunc(strings.Split(names, "\n"), s.knows):
		poke(s.due)
	}
}
