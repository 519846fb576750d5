package operation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/store"
)

// Of the processes that run a Worker two are guards: while operations are under way elsewhere, they ask many times a second whether
// the locks of the processes that own them are still held, so that what a killed process has left is gone on with at once. There are
// two, so that one sees the end of the other. Nothing is asked so often while nothing is under way. To wait for such a lock instead
// would keep a snapshot, and so would keep vacuum from its work.

const (
	guardTick   = 50 * time.Millisecond // between two looks at the locks of those who own operations
	guardLists  = time.Second           // between two looks for who does
	guardMemory = 30 * time.Second      // for how long a process is watched that owns none any more
	guardWish   = 5 * time.Second       // between two tries to become a guard
)

// guard is what a session does as one of the guards, or to become one.
type guard struct {
	mu      sync.Mutex
	workers map[chan<- struct{}]bool // to be woken
	slot    int                      // 0 if it is no guard
	owners  map[int]time.Time        // by instance: when it was last seen to own an operation

	// These are the keeper's of the session.
	wished time.Time
	late   int // how often to wake the Workers still: what is being rolled back is locked at first
}

func newGuard() *guard {
	return &guard{workers: map[chan<- struct{}]bool{}, owners: map[int]time.Time{}}
}

// join has a Worker woken when a process has died, or this one has begun a child or ended one.
func (g *guard) join(worker chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.workers[worker] = true
}

func (g *guard) leave(worker chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.workers, worker)
}

// stands reports whether the session is a guard.
func (g *guard) stands() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slot > 0
}

// watch is told who owns operations that are under way.
func (g *guard) watch(owners []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, owner := range owners {
		g.owners[owner] = now
	}
	maps.DeleteFunc(g.owners, func(_ int, seen time.Time) bool { return now.Sub(seen) > guardMemory })
}

func (g *guard) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for worker := range g.workers {
		select {
		case worker <- struct{}{}:
		default:
		}
	}
}

// pause is how long it is until the guard has something to ask. most is what the session allows.
func (g *guard) pause(most time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.slot > 0 && (len(g.owners) > 0 || g.late > 0):
		return guardTick
	case g.slot > 0 || g.wished.IsZero():
		return min(most, guardLists/4)
	}
	return most
}

// stand does what is due of a guard.
func (g *guard) stand(ctx context.Context, s *session.Session) error {
	g.mu.Lock()
	slot, wanted, owners := g.slot, len(g.workers) > 0, slices.Sorted(maps.Keys(g.owners))
	g.mu.Unlock()
	switch {
	case slot > 0 && !wanted: // the last Worker has ended: another process may be the guard
		g.stood(0)
		return s.Query(ctx, store.StandDown{Slot: slot})
	case !wanted, slot == 0 && time.Since(g.wished) < guardWish:
		return nil
	case slot == 0:
		g.wished = time.Now()
		stand := &store.StandGuard{}
		err := s.Query(ctx, stand)
		g.stood(stand.Slot)
		return err
	case g.late > 0:
		g.late--
		g.wake()
	}
	if len(owners) == 0 {
		return nil
	}
	return g.see(ctx, s, owners)
}

func (g *guard) stood(slot int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slot, g.owners = slot, map[int]time.Time{}
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
	g.mu.Unlock()
	g.late = 2
	g.wake()
	return nil
}
