package presence

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// lookout is what a Worker does as one of the guards.
type lookout struct {
	engine *txn.Engine
	worker *Watcher
	turn   time.Duration // between two looks of both guards
}

// run has the process be one of those that look for what is due, and that notice at once when another one dies.
func (l *lookout) run(ctx context.Context) {
	for ctx.Err() == nil {
		i, err := Adopt(ctx, l.engine)
		if err != nil { // the look complains of it
			_ = txn.Sleep(ctx, guardLists)
			continue
		}
		if g := i.guard(); g != nil {
			g.join(l.worker)
			l.watch(ctx, i, g)
			g.leave(l.worker)
			if ctx.Err() != nil && g.stands() > 0 {
				l.tell(ctx, wantedNames)
			}
		} else {
			l.wait(ctx, i, guardLists) // a session may take the place of the lease
		}
		i.Release()
	}
}

// watch looks what there is to watch, while the session is a guard and until the instance is lost.
func (l *lookout) watch(ctx context.Context, i *Instance, g *guard) {
	var last store.Watch
	for pause := guardLists; l.wait(ctx, i, pause); {
		pause = guardLists
		slot := g.stands()
		if slot == 0 {
			continue
		}
		seen, err := l.see(ctx, i)
		if err != nil {
			g.resign()
			continue
		}
		g.watch(seen.Owners, seen.Processes)
		l.find(ctx, g, seen, &last)
		switch {
		case seen.Processes < 2:
		case seen.Guards < last.Guards:
			l.tell(ctx, wantedNames)
		case seen.Busy && !last.Busy:
			l.tell(ctx, busyNames)
		}
		pause, last = untilTurn(seen, slot, l.turn), *seen
	}
}

// untilTurn is how long it is until the guard looks again. Two guards of which nothing is to be watched take turns, by the clock of the
// database.
func untilTurn(seen *store.Watch, slot int, turn time.Duration) time.Duration {
	if seen.Busy || seen.Guards < 2 {
		return turn
	}
	into := time.Duration(seen.WatchedAt.UnixNano()) - time.Duration(slot)*turn
	return 2*turn - into%(2*turn)
}

// see looks what there is to watch. The look of the Worker complains of errors.
func (l *lookout) see(ctx context.Context, i *Instance) (*store.Watch, error) {
	ctx, cancel := context.WithTimeout(ctx, guardLimit)
	defer cancel()
	seen := &store.Watch{Instance: i.Number}
	return seen, l.engine.Requery(ctx, seen)
}

// find wakes the Worker if it can take up what is due, and tells the others of the rest.
func (l *lookout) find(ctx context.Context, g *guard, seen, last *store.Watch) {
	rest := l.rest(seen, last)
	switch {
	case rest == "":
	case seen.Processes > 1:
		l.tell(ctx, rest)
	default:
		g.hear(rest)
	}
}

// rest wakes the Worker if it can take up what is due, and returns the names of what others have to take up. What was due in the look
// before as well is among it: the Worker may be one that works on no more of a definition, or on no other suspect, at a time.
func (l *lookout) rest(seen, last *store.Watch) string {
	if seen.More {
		poke(l.worker.due)
		return everyNames
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

// wait pauses, unless there is something to watch, ctx ends or the instance is lost.
func (l *lookout) wait(ctx context.Context, i *Instance, pause time.Duration) bool {
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

// tell has all processes hear of it.
func (l *lookout) tell(ctx context.Context, names string) {
	if len(names) > tellable {
		names = everyNames
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardLimit)
	defer cancel()
	_ = l.engine.Query(ctx, store.Tell{Names: names}) // if it is not told the next look of a guard finds it
}
