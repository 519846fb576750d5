package presence

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
)

// Two of the processes that run a Worker are guards. Together they look once a second for due
// operations and for the processes that own operations in progress. The Worker of the guard claims
// the due operations. If that Worker has no room or lacks the definition, the guard notifies the
// other processes.
//
// While other processes own operations, both guards check 20 times a second whether these owners
// still have their locks. If an owner was killed, another process resumes its operations at once.
// There are two guards so that each notices the death of the other. A guard polls the locks instead
// of waiting for a lock, because the snapshot of a waiting statement would hold up vacuum.
const (
	guardTick    = 50 * time.Millisecond // the time between two checks of the owners' locks
	guardLists   = time.Second           // the time between two looks for due operations and owners
	ownerMemory  = 30 * time.Second      // how long an owner is watched after it was last seen to own an operation
	guardLimit   = 5 * time.Second       // the timeout of one look; if a look fails, the guard resigns
	idleFactor   = 4                     // with n processes, each Worker also looks by itself every n*idleFactor seconds, in case the guards fail
	maxIdlePause = 5 * time.Minute       // the maximum of that time
)

// guard is the part of a session that tries to make its process one of the two guards, and does the
// work of a guard once that has succeeded.
type guard struct {
	mu        sync.Mutex
	workers   map[*Watcher]bool
	slot      int               // 1 or 2; 0 if the session is no guard
	resigned  bool              // a look has failed, so another process should be the guard
	owners    map[int]time.Time // by instance: when the instance last owned an operation
	processes int               // the number of processes with a session; 0 if unknown
	tryAt     time.Time         // when the session tries to become a guard

	// Only the goroutine of the session uses the fields below.
	listens bool
	late    int // how many more times to wake the Workers: the rollback of a killed process keeps row locks for a moment
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

// guardSlot returns which of the two guards the session is, 1 or 2. It returns 0 if it is none.
func (g *guard) guardSlot() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slot
}

// resign lets another process become the guard.
func (g *guard) resign() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resigned = true
}

func (g *guard) setOwners(owners []int, processes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.processes = processes
	for _, owner := range owners {
		g.owners[owner] = now
	}
	maps.DeleteFunc(g.owners, func(_ int, seen time.Time) bool { return now.Sub(seen) > ownerMemory })
}

func (g *guard) handleNotification(names string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if names == guardWanted && g.slot == 0 { // a guard that stands down also receives guardWanted, and still has its slot then
		g.tryAt = time.Now().Add(guardLists/2 + jitter(guardLists/2))
	}
	for worker := range g.workers {
		worker.handleNotification(names)
	}
}

// wakeWorkers makes the Workers of this process look for due operations.
func (g *guard) wakeWorkers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for worker := range g.workers {
		poke(worker.due)
	}
}

// idlePause returns the time between two looks of a Worker by itself: unit*idleFactor for each
// process, up to maxIdlePause, with some jitter. If the number of processes is unknown, the time is
// unit.
func (g *guard) idlePause(unit time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pauseOf(unit)
}

func (g *guard) pauseOf(unit time.Duration) time.Duration {
	if g.processes == 0 {
		return unit
	}
	unit = min(unit, 24*time.Hour)
	pause := min(unit*idleFactor*time.Duration(g.processes), max(unit, maxIdlePause))
	return pause*3/4 + jitter(pause/2)
}

// jitter returns a random pause below limit.
func jitter(limit time.Duration) time.Duration { return rand.N(max(limit, 1)) }

// pause returns how long the session may wait before the next call of act. The result is never
// above limit.
func (g *guard) pause(limit time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.slot > 0 && (len(g.owners) > 0 || g.late > 0):
		return guardTick
	case g.slot > 0 || g.tryAt.IsZero() || len(g.workers) == 0: // the slot, tryAt and the Workers may change without a notification
		return min(limit, guardLists/4)
	}
	return max(min(limit, time.Until(g.tryAt)), time.Millisecond)
}

// act does the next piece of work of a guard or of a candidate, if some is due. It reports whether
// it has sent a statement.
func (g *guard) act(ctx context.Context, s *session.Session) (asked bool, err error) {
	g.mu.Lock()
	slot, wanted, resigned, wish := g.slot, len(g.workers) > 0, g.resigned, g.tryAt
	owners := slices.Sorted(maps.Keys(g.owners))
	g.mu.Unlock()
	// The order of the cases is: stand down, listen for notifications, try to become a guard, and
	// do the work of a guard.
	switch {
	case slot > 0 && (!wanted || resigned): // let another process become the guard
		g.becomes(&db.StandGuardRow{})
		return true, s.Query(ctx, db.StandDown{Slot: slot})
	case wanted && !g.listens:
		g.listens = true
		return true, s.Query(ctx, db.Listen{})
	case !wanted, slot == 0 && time.Now().Before(wish):
		return false, nil
	case slot == 0:
		stand := &db.StandGuard{}
		err := s.Query(ctx, stand)
		g.becomes(&stand.StandGuardRow)
		return true, err
	case g.late > 0:
		g.late--
		g.wakeWorkers()
	}
	if len(owners) == 0 {
		return false, nil
	}
	return true, g.checkOwners(ctx, s, owners)
}

// becomes sets the slot of the session to stand.Slot, which is 0 if the session is no guard.
func (g *guard) becomes(stand *db.StandGuardRow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slot, g.resigned, g.owners = stand.Slot, false, map[int]time.Time{}
	if stand.Processes > 0 {
		g.processes = stand.Processes
	}
	g.tryAt = time.Now().Add(g.pauseOf(time.Second))
	for worker := range g.workers {
		poke(worker.watch)
	}
}

// checkOwners checks the locks of the owners. If an owner no longer has its lock, checkOwners wakes
// the Workers.
func (g *guard) checkOwners(ctx context.Context, s *session.Session, owners []int) error {
	see := db.SeeGone{Instances: owners}
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
	g.wakeWorkers()
	return nil
}
