// Package broker is the message broker of the benchmark. A Sink receives published messages. A
// Source delivers messages, some of them twice. Both are in memory. Worker processes reach them
// over a loopback connection.
package broker

import (
	"context"
	"sync"
	"time"
)

// board is a mutex with which a goroutine can also wake all goroutines that wait for a change.
type board struct {
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced by a new channel, at each change
}

func newBoard() board { return board{changed: make(chan struct{})} }

// signal wakes all goroutines in await. The caller must have locked b.mu.
func (b *board) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until done() returns true. It locks b.mu while it calls done.
func (b *board) await(ctx context.Context, done func() bool) error {
	for {
		b.mu.Lock()
		isDone, changed := done(), b.changed
		b.mu.Unlock()
		if isDone {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Sink receives published messages and records their order.
type Sink struct {
	board
	came  []string
	first map[string]int // for each message, the index of its first arrival in the field came
}

// NewSink returns an empty Sink.
func NewSink() *Sink { return &Sink{board: newBoard(), first: map[string]int{}} }

// Publish records that the messages with these ids arrived, in this order.
func (s *Sink) Publish(_ context.Context, ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, again := s.first[id]; !again {
			s.first[id] = len(s.came)
		}
		s.came = append(s.came, id)
	}
	s.signal()
	return nil
}

// Distinct returns the number of distinct messages that have arrived.
func (s *Sink) Distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.first)
}

// Await waits until n distinct messages have arrived.
func (s *Sink) Await(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return len(s.first) >= n })
}

// AwaitOrRest waits until n distinct messages have arrived, or until no new message has arrived
// during the time rest.
func (s *Sink) AwaitOrRest(ctx context.Context, n int, rest time.Duration) error {
	for came := s.Distinct(); came < n; came = s.Distinct() {
		resting, cancel := context.WithTimeout(ctx, rest)
		err := s.Await(resting, came+1)
		cancel()
		if err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Expected is a message that must be published. Among the messages with the key Key, it is the
// message with the number N.
type Expected struct {
	ID  string
	Key int
	N   int64
}

// Account contains the differences between the committed and the published messages.
type Account struct {
	Committed int // committed messages
	Lost      int // messages of committed orders that were not published
	Phantoms  int // published messages whose order was not committed
	Twice     int // messages that were published more than once
	Inverted  int // messages that first arrived after a later message with the same key
}

// Audit compares the published messages with the messages of committed orders. These must be sorted
// by the fields Key and N.
func (s *Sink) Audit(committed []Expected) Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Account{Committed: len(committed)}
	times := map[string]int{}
	for _, id := range s.came {
		times[id]++
	}
	// The loop goes backward through the messages of each key. earliest is the first arrival among
	// the later messages of the key.
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
