// Package broker is the broker of all contestants: a Sink that counts the published messages, and a
// Source that delivers some messages twice. Both are in memory. Worker processes reach them over a
// loopback connection.
package broker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Sink receives published messages and records their order.
type Sink struct {
	mu      sync.Mutex
	came    []string
	first   map[string]int // index in came
	changed chan struct{}  // closed and replaced when messages arrive
}

// NewSink returns an empty Sink.
func NewSink() *Sink { return &Sink{first: map[string]int{}, changed: make(chan struct{})} }

// Publish records messages by their ids, in this order.
func (s *Sink) Publish(_ context.Context, ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, again := s.first[id]; !again {
			s.first[id] = len(s.came)
		}
		s.came = append(s.came, id)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Distinct returns the number of distinct messages.
func (s *Sink) Distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.first)
}

// Await waits until n distinct messages have arrived.
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

// AwaitOrRest waits until n distinct messages have arrived, or until none has arrived for rest.
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

// awaitCame waits until n messages have arrived, including repeated ones.
func (s *Sink) awaitCame(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return len(s.came) >= n })
}

// Expected is a message that must be published: the N-th message of its key.
type Expected struct {
	ID  string
	Key int
	N   int64
}

// Account compares the published messages with the committed ones.
type Account struct {
	Committed int // committed messages
	Lost      int // committed and not published
	Phantoms  int // published and not committed
	Twice     int // published more than once
	Inverted  int // first published after a later message of the key
}

// Audit compares the published messages with the committed ones. committed must be sorted by key
// and number.
func (s *Sink) Audit(committed []Expected) Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Account{Committed: len(committed)}
	times := map[string]int{}
	for _, id := range s.came {
		times[id]++
	}
	// The loop goes backward through the messages of a key. earliest is the first arrival of any
	// later message of the key.
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
