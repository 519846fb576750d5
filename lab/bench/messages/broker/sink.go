// Package broker is the broker of all contestants: a Sink that takes messages and counts them, and
// a Source that delivers some of them twice. Both are plain memory, used in this process or, by one
// that gets killed, over a loopback connection.
package broker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Sink is the side that messages are published to. It writes down what came, and when.
type Sink struct {
	mu      sync.Mutex
	came    []string
	at      []time.Time
	first   map[string]int // where in came
	changed chan struct{}  // closed, and made anew, when something has come
}

// NewSink returns one that nothing was published to.
func NewSink() *Sink { return &Sink{first: map[string]int{}, changed: make(chan struct{})} }

// Publish takes messages, which are known by their ids, in this order.
func (s *Sink) Publish(_ context.Context, ids ...string) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, again := s.first[id]; !again {
			s.first[id] = len(s.came)
		}
		s.came, s.at = append(s.came, id), append(s.at, now)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Distinct is how many messages have come, each counted once.
func (s *Sink) Distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.first)
}

// Await waits until so many messages have come, each counted once.
func (s *Sink) Await(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return len(s.first) >= n })
}

func (s *Sink) await(ctx context.Context, enough func() bool) error {
	for {
		s.mu.Lock()
		is, changed := enough(), s.changed
		s.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// AwaitOrRest waits until so many messages have come, or nothing has come for a while: then nothing
// will.
func (s *Sink) AwaitOrRest(ctx context.Context, n int, rest time.Duration) error {
	for {
		s.mu.Lock()
		enough, next := len(s.first) >= n, len(s.came)+1
		s.mu.Unlock()
		if enough {
			return nil
		}
		resting, cancel := context.WithTimeoutCause(ctx, rest, errRest)
		err := s.awaitCame(resting, next)
		cancel()
		if errors.Is(err, errRest) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var errRest = errors.New("nothing comes any more")

// awaitCame waits until so many have come, whatever comes again.
func (s *Sink) awaitCame(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return len(s.came) >= n })
}

// At is when a message came first.
func (s *Sink) At(id string) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place, ok := s.first[id]
	if ok {
		at = s.at[place]
	}
	return at, ok
}

// Expected is a message that was to be published: of a key the one with this number.
type Expected struct {
	ID  string
	Key int
	N   int64
}

// Account is the outcome of messages that were to be published.
type Account struct {
	Committed int // that were to be published
	Lost      int // that never came
	Phantoms  int // that came although nothing of them was committed
	Twice     int // that came more than once
	Inverted  int // that came, for the first time, after a later one of their key had
}

// Audit compares what came with what was committed, which is sorted by key and number.
func (s *Sink) Audit(committed []Expected) Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Account{Committed: len(committed)}
	times := map[string]int{}
	for _, id := range s.came {
		times[id]++
	}
	// From the last message of a key to its first: earliest is where the first of those behind it
	// came.
	earliest, key := len(s.came), -1
	for i := len(committed) - 1; i >= 0; i-- {
		message := committed[i]
		if message.Key != key {
			earliest, key = len(s.came), message.Key
		}
		n := times[message.ID]
		delete(times, message.ID)
		if n == 0 {
			a.Lost++
			continue
		}
		if n > 1 {
			a.Twice++
		}
		place := s.first[message.ID]
		if place > earliest {
			a.Inverted++
		}
		earliest = min(earliest, place)
	}
	a.Phantoms = len(times)
	return a
}
