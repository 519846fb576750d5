// Package flight makes calls of one process wait for one another if they have the same key. The
// first call is the leader and does the work. The other calls are followers, which wait for its
// result and use only memory. If a leader gives up, it wakes one follower, which becomes the
// leader. The other followers keep waiting, so a change of the leader costs the same for any number
// of followers.
package flight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group has the flights in progress by key.
type Group[K comparable, V any] struct {
	// Stuck reports whether a leader that has no database connection yet must wait for a free one.
	// If Stuck is nil, every leader without a connection counts as stuck.
	Stuck func(K) bool

	mu      sync.Mutex
	flights map[K]*Flight[K, V]
}

// Flight is the work on one key, with a leader and followers. A zero Flight may be passed to Join.
type Flight[K comparable, V any] struct {
	group *Group[K, V]
	key   K
	asked atomic.Bool // the leader has a database connection

	// The fields below are guarded by the lock of the group.
	followers  int
	leaderless bool
	isBusy     bool
	busy       chan struct{} // closed when the key is in progress elsewhere; the first follower makes all channels
	next       chan struct{} // has an element while there is no leader
	done       chan struct{} // closed when value is set
	value      V
	note       string
}

// Join returns the flight of key. If key has no flight, Join registers the parameter own as the
// flight, and the caller becomes the leader, which must call Finish or Abandon, even if it panics.
// Otherwise the caller becomes a follower, which must call Wait or Leave.
func (g *Group[K, V]) Join(key K, own *Flight[K, V]) (f *Flight[K, V], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f, ok := g.flights[key]; ok {
		f.follow()
		return f, false
	}
	if g.flights == nil {
		g.flights = map[K]*Flight[K, V]{}
	}
	own.group, own.key = g, key
	g.flights[key] = own
	return own, true
}

func (f *Flight[K, V]) follow() {
	f.followers++
	if f.done != nil {
		return
	}
	f.done, f.busy, f.next = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	if f.isBusy {
		close(f.busy)
	}
}

// MarkAsked notes that the leader has a connection and is asking the database, so that it does not
// count as stuck.
func (f *Flight[K, V]) MarkAsked() { f.asked.Store(true) }

// SetNote stores a note that the next leader of the flight can read.
func (f *Flight[K, V]) SetNote(note string) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.note = note
}

// Note returns the latest note that a leader of the flight has stored with SetNote, or "".
func (f *Flight[K, V]) Note() string {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.note
}

// MarkBusy notes that the key is in progress elsewhere. Followers that do not want to wait then
// return Busy.
func (f *Flight[K, V]) MarkBusy() {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	if f.isBusy {
		return
	}
	f.isBusy = true
	if f.busy != nil {
		close(f.busy)
	}
}

// Finish ends the flight. Every follower gets the result of copied(value). Finish calls copied once
// for all followers.
func (f *Flight[K, V]) Finish(value V, copied func(V) V) {
	f.group.mu.Lock()
	delete(f.group.flights, f.key)
	followed := f.done != nil
	f.group.mu.Unlock()
	if followed {
		f.value = copied(value)
		close(f.done)
	}
}

// Abandon ends the work of the leader without a value. One follower becomes the leader. If there
// are no followers, the flight ends.
func (f *Flight[K, V]) Abandon() {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	if f.followers == 0 {
		delete(f.group.flights, f.key)
		return
	}
	f.leaderless = true
	f.asked.Store(false)
	f.next <- struct{}{}
}

// Leave removes a follower that does not call Wait from the flight.
func (f *Flight[K, V]) Leave() { f.leave(false) }

// leave removes a follower from the flight. If there is no leader and no follower left, it removes
// the flight from the group.
func (f *Flight[K, V]) leave(leads bool) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.followers--
	if leads {
		f.leaderless = false
	}
	if f.leaderless && f.followers == 0 {
		delete(f.group.flights, f.key)
	}
}

// Ending is the result of a follower's wait.
type Ending int

const (
	Answered Ending = iota // the leader has finished with a value
	Leading                // the caller is the leader now: it must call Finish or Abandon
	Busy                   // the key is in progress elsewhere, or the time to wait has passed
	Left                   // the context has ended
)

// A follower that does not want to wait must still learn whether the key is in progress. Every
// lookPause it checks whether the leader is stuck without a connection, and gives up if so. After
// maxLooks checks it gives up in any case.
const (
	lookPause = 50 * time.Millisecond
	maxLooks  = 20
)

// Wait waits for the leader, at most for the duration remaining. If remaining is not positive, Wait
// still waits for the leader, but returns Busy if the leader calls MarkBusy, is stuck without a
// connection, or has not finished after maxLooks checks.
func (f *Flight[K, V]) Wait(ctx context.Context, remaining time.Duration) (V, Ending) {
	ending := f.wait(ctx, remaining)
	f.leave(ending == Leading)
	if ending == Answered {
		return f.value, ending
	}
	var none V
	return none, ending
}

func (f *Flight[K, V]) isStuck() bool { return f.group.Stuck == nil || f.group.Stuck(f.key) }

func (f *Flight[K, V]) wait(ctx context.Context, remaining time.Duration) Ending {
	// If the follower wants to wait, busy stays nil, so that the select never receives from it, and
	// the timer expires once, at the end of the wait. Otherwise the timer expires every lookPause,
	// and the follower checks whether it must give up: see lookPause.
	patient := remaining > 0
	var busy chan struct{}
	if !patient {
		busy, remaining = f.busy, lookPause
	}
	timer := time.NewTimer(remaining)
	defer timer.Stop()
	for looks := 0; ; {
		select {
		case <-f.done:
			return Answered
		case <-f.next:
			return Leading
		case <-ctx.Done():
			return Left
		case <-busy:
			return Busy
		case <-timer.C:
			looks++
			if patient || !f.asked.Load() && f.isStuck() || looks == maxLooks {
				return Busy
			}
			timer.Reset(lookPause)
		}
	}
}
