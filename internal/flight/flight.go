// Package flight makes calls of one process that want the same thing wait for one another. One call
// leads, and the others follow: they wait, and use only memory. This only saves work. If a leader
// gives up, it wakes one follower, which leads next. The other followers keep waiting, so a change
// of the leader costs the same for any number of followers.
package flight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group holds the flights in progress by their keys.
type Group[K comparable, V any] struct {
	// Stuck reports whether a leader without a connection will have to wait for one. If Stuck is
	// nil, every such leader counts as stuck.
	Stuck func(K) bool

	mu      sync.Mutex
	flights map[K]*Flight[K, V]
}

// Flight is the work on one key, with a leader and followers. A zero Flight may be passed to Join.
type Flight[K comparable, V any] struct {
	group *Group[K, V]
	key   K
	asked atomic.Bool // the leader has a connection

	// Under the lock of the group.
	followers  int
	leaderless bool
	isBusy     bool
	busy       chan struct{} // closed when the key is known to be held; all channels are made for the first follower
	next       chan struct{} // holds a token while there is no leader
	done       chan struct{} // closed when value is set
	value      V
	note       string
}

// Join returns the flight of key. If key has none, Join makes the parameter own its flight, and the
// caller leads: it must call Finish or Abandon, even if it panics. Otherwise the caller follows: it
// must call Wait or Leave.
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

// MarkAsked notes that the leader has a connection on which it asks the database. Such a leader is
// not stuck.
func (f *Flight[K, V]) MarkAsked() { f.asked.Store(true) }

// SetNote stores a note for the next leader.
func (f *Flight[K, V]) SetNote(note string) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.note = note
}

// Note returns the note that an earlier leader has stored last with SetNote, or "".
func (f *Flight[K, V]) Note() string {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.note
}

// MarkBusy notes that the key is held. Followers that do not want to wait return.
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

// Finish ends the flight. Every follower gets copied(value), which is called once for all of them.
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

// Abandon ends the work of the leader without a value. One follower leads next. If there are no
// followers, the flight ends.
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

// The endings of a wait.
const (
	Answered Ending = iota // the leader has finished with a value
	Leading                // the caller leads now: it must call Finish or Abandon
	Busy                   // the key is held, or the time is over
	Left                   // the context has ended
)

// A follower that does not want to wait checks, every lookPause, whether the leader is stuck
// without a connection. After maxLooks checks the follower gives up even if the leader has a
// connection.
const (
	lookPause = 50 * time.Millisecond
	maxLooks  = 20
)

// Wait waits for the leader, at most for the time remaining. If remaining is not positive, Wait
// returns Busy as soon as the key is known to be held or the leader is stuck without a connection.
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
	// For a follower that wants to wait, busy stays nil, so that the select never receives from it.
	// The timer of such a follower expires once, at the end of the wait. The timer of a follower
	// that does not want to wait expires every lookPause.
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
