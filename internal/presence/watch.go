package presence

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// guardLoop looks for due operations while its process is a guard.
type guardLoop struct {
	engine *txn.Engine
	worker *Watcher
	turn   time.Duration // between two looks of both guards
}

// run takes part in the election of guards until ctx ends.
func (l *guardLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		i, err := Adopt(ctx, l.engine)
		if err != nil { // the look of the Worker logs it
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

// untilTurn returns the pause before the next look of the guard. If there is nothing to watch, two guards take turns by the clock of the
// database.
func untilTurn(seen *db.WatchRow, slot int, turn time.Duration) time.Duration {
	if seen.Busy || seen.Guards < 2 {
		return turn
	}
	into := time.Duration(seen.WatchedAt.UnixNano()) - time.Duration(slot)*turn
	return 2*turn - into%(2*turn)
}

// look reads what is due and who owns operations. The look of the Worker logs errors.
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
		g.notified(rest)
	}
}

// unclaimed wakes the Worker if it can take over what is due, and returns the names for other processes: those that the Worker lacks,
// has no room for, or has left due since the look before, because of WithConcurrency or another suspect.
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
	_ = l.engine.Query(ctx, db.Tell{Names: names}) // if it fails, the next look of a guard repeats it
}
