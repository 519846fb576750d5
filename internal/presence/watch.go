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
	turn   time.Duration // the time between a look of one guard and the next look of the other guard
}

// run takes part in the election of guards until ctx ends.
func (l *guardLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		i, err := Adopt(ctx, l.engine)
		if err != nil { // the Worker gets the same error and logs it
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
			l.wait(ctx, i, guardLists) // a session may replace the lease later
		}
		i.Release()
	}
}

// watch looks for due operations whenever the session is a guard. It returns when the instance is
// lost or ctx has ended.
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

// untilTurn returns the pause before the next look of this guard. If there is no second guard, or
// if operations are in progress, the pause is one turn. Otherwise the two guards look alternately,
// at multiples of turn by the database's clock.
func untilTurn(seen *db.WatchRow, slot int, turn time.Duration) time.Duration {
	if seen.Busy || seen.Guards < 2 {
		return turn
	}
	into := time.Duration(seen.WatchedAt.UnixNano()) - time.Duration(slot)*turn
	return 2*turn - into%(2*turn)
}

// look reads which operations are due and which instances own operations. The caller does not log
// the error of look, because the Worker gets the same error and logs it.
func (l *guardLoop) look(ctx context.Context, i *Instance) (*db.WatchRow, error) {
	ctx, cancel := context.WithTimeout(ctx, guardLimit)
	defer cancel()
	watch := &db.Watch{Instance: i.Number, Room: db.WatchRoom}
	err := l.engine.Requery(ctx, watch)
	return &watch.WatchRow, err
}

// find wakes the Worker if the Worker can claim due operations. It notifies other processes of the
// other due operations.
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

// unclaimed wakes the Worker if the Worker can claim due operations. It returns the names of due
// operations that other processes should claim. A name is returned if the Worker lacks its
// definition or has no room, or if the name was already due at the last look.
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

// wait waits for the pause, or until the Watcher asks for a look. It reports false if ctx has ended
// or the instance is lost.
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

// notify sends a notification with names to all processes.
func (l *guardLoop) notify(ctx context.Context, names string) {
	if len(names) > maxNotification {
		names = anyName
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardLimit)
	defer cancel()
	_ = l.engine.Query(ctx, db.Tell{Names: names}) // after an error, the next look of a guard notifies again
}

// Watcher connects a Worker with the guard in the session of its process.
type Watcher struct {
	due   chan struct{}          // has a value if the Worker has to look for due operations
	watch chan struct{}          // has a value if the guard loop has to look at once
	knows func(name string) bool // reports whether the Worker has the definition
	full  atomic.Bool            // the Worker has no room
}

// NewWatcher returns the Watcher of a Worker. The function knows reports whether the Worker has the
// definition of a given name.
func NewWatcher(knows func(name string) bool) *Watcher {
	return &Watcher{due: make(chan struct{}, 1), watch: make(chan struct{}, 1), knows: knows}
}

// Run makes the process a candidate for guard until ctx ends. If the process is a guard, Run looks
// for due operations. turn limits the time between two looks.
func (s *Watcher) Run(ctx context.Context, engine *txn.Engine, turn time.Duration) {
	(&guardLoop{engine, s, min(guardLists, turn)}).run(ctx)
}

// Due returns a channel that has a value when the Worker has to look for due operations.
func (s *Watcher) Due() <-chan struct{} { return s.due }

// SetFull stores whether the Worker has no room for more operations.
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

// The notifications that a guard sends, apart from names of due operations. anyName replaces names
// that are too long for one notification. busyAgain makes the other guard look at the owners again.
// guardWanted says that a process can become a guard.
//
// Postgres commits transactions that notify one after the other. Therefore only guards notify,
// about once a second, and no commit of an operation notifies.
const (
	guardWanted     = ""
	anyName         = "#" // no definition has that name
	busyAgain       = "#busy"
	maxNotification = 7900
)

func (s *Watcher) handleNotification(names string) {
	switch {
	case names == guardWanted, names == busyAgain:
		poke(s.watch)
	case names == anyName || slices.ContainsFunc(strings.Split(names, "\n"), s.knows):
		poke(s.due)
	}
}
