package presence

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/store"
)

// Of the processes that run a Worker two are guards. They take turns to look, once a second in all, for operations that are due and for
// processes that work on some. What is due the guard's own Worker takes up, or, if it has no room or lacks the definition, the guard
// tells those that listen. While operations are under way elsewhere, both guards ask many times a second whether the locks of the
// processes that own them are still held, so that what a killed process has left is gone on with at once. There are two, so that one sees
// the end of the other. Nothing is asked so often while nothing is under way. To wait for such a lock instead would keep a snapshot, and
// so would keep vacuum from its work.

const (
	guardTick   = 50 * time.Millisecond // between two looks at the locks of those who own operations
	guardLists  = time.Second           // between two looks for what is due and who works on it
	guardMemory = 30 * time.Second      // for how long a process is watched that owns none any more
	guardLimit  = 5 * time.Second       // for one of those looks: a guard that cannot look is none
	seldom      = 4                     // of all processes together, how many seconds pass between two that do something just in case
	longest     = 5 * time.Minute       // for one of them, however many there were
)

// guard is what a session does as one of the guards, or to become one.
type guard struct {
	mu        sync.Mutex
	workers   map[*Watcher]bool
	slot      int               // 0 if it is no guard
	resigned  bool              // it cannot look
	owners    map[int]time.Time // by instance: when it was last seen to own an operation
	processes int               // how many are there; 0 if that is not known
	wish      time.Time         // when it tries to become a guard

	// These are the keeper's of the session.
	listens bool
	late    int // how often to wake the Workers still: what is being rolled back is locked at first
}

func newGuard() *guard {
	return &guard{workers: map[*Watcher]bool{}, owners: map[int]time.Time{}}
}

func (g *guard) join(worker *Watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.workers[worker] = true
}

func (g *guard) leave(worker *Watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.workers, worker)
}

// stands returns which guard the session is, 0 if it is none.
func (g *guard) stands() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slot
}

// resign leaves the place to another process.
func (g *guard) resign() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resigned = true
}

// watch is told who owns operations that are under way, and how many processes are there.
func (g *guard) watch(owners []int, processes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.processes = processes
	for _, owner := range owners {
		g.owners[owner] = now
	}
	maps.DeleteFunc(g.owners, func(_ int, seen time.Time) bool { return now.Sub(seen) > guardMemory })
}

// hear is told what a guard has told.
func (g *guard) hear(names string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if names == wantedNames && g.slot == 0 { // a guard that stands down is heard of first
		g.wish = time.Now().Add(guardLists/2 + jitter(guardLists/2))
	}
	for worker := range g.workers {
		worker.hear(names)
	}
}

// wake has the Workers of this process look for what is due.
func (g *guard) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for worker := range g.workers {
		poke(worker.due)
	}
}

// rarely is a pause between two things that a process does in case that the guards do not, or unit if it is not known how many do so:
// the more there are the more rarely each does. unit is what counts as a second.
func (g *guard) rarely(unit time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pauseOf(unit)
}

func (g *guard) pauseOf(unit time.Duration) time.Duration {
	if g.processes == 0 {
		return unit
	}
	unit = min(unit, 24*time.Hour)
	pause := min(unit*seldom*time.Duration(g.processes), max(unit, longest))
	return pause*3/4 + jitter(pause/2)
}

// jitter is some pause shorter than most.
func jitter(most time.Duration) time.Duration { return rand.N(max(most, 1)) }

// pause is how long it is until the session has something to ask. most is what the session allows.
func (g *guard) pause(most time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.slot > 0 && (len(g.owners) > 0 || g.late > 0):
		return guardTick
	case g.slot > 0 || g.wish.IsZero() || len(g.workers) == 0: // this may change without a word on the session
		return min(most, guardLists/4)
	}
	return max(min(most, time.Until(g.wish)), time.Millisecond)
}

// stand does what is due of a guard. It reports whether that was something to ask.
func (g *guard) stand(ctx context.Context, s *session.Session) (asked bool, err error) {
	g.mu.Lock()
	slot, wanted, resigned, wish := g.slot, len(g.workers) > 0, g.resigned, g.wish
	owners := slices.Sorted(maps.Keys(g.owners))
	g.mu.Unlock()
	switch {
	case slot > 0 && (!wanted || resigned): // another process may be the guard
		g.stood(&store.StandGuard{})
		return true, s.Query(ctx, store.StandDown{Slot: slot})
	case wanted && !g.listens:
		g.listens = true
		return true, s.Query(ctx, store.Listen{})
	case !wanted, slot == 0 && time.Now().Before(wish):
		return false, nil
	case slot == 0:
		stand := &store.StandGuard{}
		err := s.Query(ctx, stand)
		g.stood(stand)
		return true, err
	case g.late > 0:
		g.late--
		g.wake()
	}
	if len(owners) == 0 {
		return false, nil
	}
	return true, g.see(ctx, s, owners)
}

// stood is told which guard the session has become, or that it is none.
func (g *guard) stood(stand *store.StandGuard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slot, g.resigned, g.owners = stand.Slot, false, map[int]time.Time{}
	if stand.Processes > 0 {
		g.processes = stand.Processes
	}
	g.wish = time.Now().Add(g.pauseOf(time.Second))
	for worker := range g.workers {
		poke(worker.watch)
	}
}

// see asks which of the owners are gone.
func (g *guard) see(ctx context.Context, s *session.Session, owners []int) error {
	see := store.SeeGone{Instances: owners}
	if err := s.Query(ctx, &see); err != nil || len(see.Gone) == 0 {
		return err
	}
	g.mu.Lock()
	for _, owner := range see.Gone {
		delete(g.owners, owner)
	}
	for worker := range g.workers {
		poke(worker.watch)
	}
	g.mu.Unlock()
	g.late = 2
	g.wake()
	return nil
}
