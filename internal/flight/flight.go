// Package flight lets calls of one process that want the same thing wait for one another: one leads, the others follow and
// hold nothing but memory. It only saves work. A leader that fails hands over to one follower, and the others sleep on, so
// that a run costs the same however many wait.
package flight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group holds the flights under way, by what they are about.
type Group[K comparable, V any] struct {
	// Stuck reports whether a leader that has no connection yet will not soon have one. Nil says so of every such leader.
	Stuck func(K) bool

	mu      sync.Mutex
	flights map[K]*Flight[K, V]
}

// Flight is one thing that some call is seeing to. The zero Flight is ready to be given to Join.
type Flight[K comparable, V any] struct {
	group *Group[K, V]
	key   K
	asked atomic.Bool // the leader has its connection

	// Under the lock of the group.
	followers  int
	leaderless bool
	isBusy     bool
	busy       chan struct{} // closed when the key is known to be held; made for the first follower, as are the others
	next       chan struct{} // holds a token when the lead is to be had
	done       chan struct{} // closed when value is there
	value      V
	note       string
}

// Join returns the flight about key. If there is none it begins own, and the caller leads: it must call Finish or Abandon,
// also if it panics. A follower must call Wait, or Leave.
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

// MarkAsked says that the leader has its connection.
func (f *Flight[K, V]) MarkAsked() { f.asked.Store(true) }

// Note leaves a word for the next leader, who would not know otherwise what the one before has found.
func (f *Flight[K, V]) SetNote(note string) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.note = note
}

// Noted returns the last word of a leader before.
func (f *Flight[K, V]) Note() string {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.note
}

// MarkBusy says that the key is held. Followers that do not want to wait leave.
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

// Finish ends the flight: every follower is given what copied makes of value, once for all of them.
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

// Abandon ends the lead without a value: one follower is given the lead. Without followers the flight is over.
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

// Leave ends a follower's part without a wait.
func (f *Flight[K, V]) Leave() { f.leave(false) }

// leave takes a follower that goes off the flight, and the flight off the group if no follower is left to lead it.
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

// Ending is what a follower's wait came to.
type Ending int

// The endings of a wait.
const (
	Answered Ending = iota // the leader has left a value
	Leading                // the lead is the caller's: it must call Finish or Abandon
	Busy                   // the key is held, or the time is over
	Left                   // the context has ended
)

// A follower that does not want to wait looks from time to time whether the leader gets no connection, and has had enough
// of one that asks and is not answered.
const (
	stalled = 50 * time.Millisecond
	enough  = 20
)

// Wait waits for the leader, for as long as remaining: if that is not positive, until the key is known to be held, or the
// leader is stuck without a connection.
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
	patient := remaining > 0
	var busy chan struct{}
	if !patient {
		busy, remaining = f.busy, stalled
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
			if patient || !f.asked.Load() && f.isStuck() || looks == enough {
				return Busy
			}
			timer.Reset(stalled)
		}
	}
}
