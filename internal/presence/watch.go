package presence

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// guardLoop looks for due operations while its process is a guard.
type guardLoop struct {
	engine *txn.Engine
	worker *Watcher
	turn   time.Duration // between a look of one guard and the next look of the other
}

// run takes part in the election of guards until ctx ends.
func (l *guardLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		i, err := Adopt(ctx, l.engine)
		if err != nil { // the Worker meets the same error and logs it
			_ = txn.Sleep(ctx, guardLists)
			continue
		}
		if g := i.guard(); g != nil {
			g.join(l.worker)
			l.watch(ctx, i, g)
			g.leave(l.worker)
			if ctx.Err() != nil && g.guardSlot() > 0 {
				l.notify(ctx, guardWanted)
			}
		} else {
			l.wait(ctx, i, guardLists) // a session may take the place of the lease
		}
		i.Release()
	}
}

// watch looks while the session is a guard, until the instance is lost.
func (l *guardLoop) watch(ctx context.Context, i *Instance, g *guard) {
	var last db.WatchRow
	for pause := guardLists; l.wait(ctx, i, pause); {
		pause = guardLists
		slot := g.guardSlot()
		if slot == 0 {
			continue
		}
		seen, err := l.look(ctx, i)
		if err != nil {
			g.resign()
			continue
		}
		g.setOwners(seen.Owners, seen.Processes)
		l.find(ctx, g, seen, &last)
		switch {
		case seen.Processes < 2:
		case seen.Guards < last.Guards:
			l.notify(ctx, guardWanted)
		case seen.Busy && !last.Busy:
			l.notify(ctx, busyAgain)
		}
		pause, last = untilTurn(seen, slot, l.turn), *seen
	}
}

// untilTurn returns the pause before the next look of the guard. The pause is one turn if there is
// no second guard, or if due operations have owners. Otherwise the two guards look alternately, at
// times that are multiples of a turn by the clock of the database.
func untilTurn(seen *db.WatchRow, slot int, turn time.Duration) time.Duration {
	if seen.Busy || seen.Guards < 2 {
		return turn
	}
	into := time.Duration(seen.WatchedAt.UnixNano()) - time.Duration(slot)*turn
	return 2*turn - into%(2*turn)
}

// look reads what is due and who owns operations. The caller does not log its error, because the
// Worker gets the same error and logs it.
func (l *guardLoop) look(ctx context.Context, i *Instance) (*db.WatchRow, error) {
	ctx, cancel := context.WithTimeout(ctx, guardLimit)
	defer cancel()
	watch := &db.Watch{Instance: i.Number, Room: db.WatchRoom}
	err := l.engine.Requery(ctx, watch)
	return &watch.WatchRow, err
}

// find wakes the Worker if it can take over what is due, and notifies other processes of the rest.
func (l *guardLoop) find(ctx context.Context, g *guard, seen, last *db.WatchRow) {
	rest := l.unclaimed(seen, last)
	switch {
	case rest == "":
	case seen.Processes > 1:
		l.notify(ctx, rest)
	default:
		g.handleNotification(rest)
	}
}

// unclaimed wakes the Worker if it can take over what is due, and returns the names of due
// operations for other processes. These are names for which the Worker has no definition or no
// room, and names of operations that were already due at the last look and that the Worker has not
// taken over.
func (l *guardLoop) unclaimed(seen, last *db.WatchRow) string {
	if seen.More {
		poke(l.worker.due)
		return anyName
	}
	var rest []string
	for _, name := range seen.Names {
		knows := l.worker.knows(name)
		if knows {
			poke(l.worker.due)
		}
		if !knows || l.worker.full.Load() || slices.Contains(last.Names, name) {
			rest = append(rest, name)
		}
	}
	return strings.Join(rest, "\n")
}

// wait pauses. It reports false if ctx has ended or the instance is lost.
func (l *guardLoop) wait(ctx context.Context, i *Instance, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.worker.watch:
		return true
	case <-i.gone:
	case <-ctx.Done():
	}
	return false
}

// notify notifies all processes of names.
func (l *guardLoop) notify(ctx context.Context, names string) {
	if len(names) > maxNotification {
		names = anyName
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardLimit)
	defer cancel()
	_ = l.engine.Query(ctx, db.Tell{Names: names}) // after an error the next look of a guard repeats it
}

// Watcher connects a Worker with the guard of its session.
type Watcher struct {
	due   chan struct{}          // has a value if the Worker has to look for due operations
	watch chan struct{}          // has a value if the guard loop has to look
	knows func(name string) bool // reports whether the Worker has the definition
	full  atomic.Bool            // the Worker has no room
}

// NewWatcher returns the watcher of a Worker. knows reports whether the Worker has the definition
// of a name.
func NewWatcher(knows func(name string) bool) *Watcher {
	return &Watcher{due: make(chan struct{}, 1), watch: make(chan struct{}, 1), knows: knows}
}

// Run makes the process a candidate for guard until ctx ends. A guard looks once a turn.
func (s *Watcher) Run(ctx context.Context, engine *txn.Engine, turn time.Duration) {
	(&guardLoop{engine, s, min(guardLists, turn)}).run(ctx)
}

// Due has a value when the Worker has to look for due operations.
func (s *Watcher) Due() <-chan struct{} { return s.due }

// SetFull says whether the Worker has no room for more operations.
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

// The notifications of a guard, apart from names of due operations. anyName stands for names that
// are too long for one notification. busyAgain makes the other guard watch owners again.
// guardWanted says that a slot is free.
//
// Only guards notify, about once a second. Postgres commits notifying transactions one after the
// other, so no commit of an operation may notify.
const (
	guardWanted     = ""
	anyName         = "#" // no definition has that name
	busyAgain       = "#busy"
	maxNotification = 7900
)

// handleNotification handles a notification that a guard has sent.
func (s *Watcher) handleNotification(names string) {
	switch {
	case names == guardWanted, names == busyAgain:
		poke(s.watch)
	case names == anyName || slices.ContainsFunc(strings.Split(names, "\n"), s.knows):
		poke(s.due)
	}
}
