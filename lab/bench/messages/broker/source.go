package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Delivery is a message as the Source delivers it.
type Delivery struct {
	Tag        int64 // of this delivery
	ID         string
	Payload    []byte
	Deliveries int // how often the broker has delivered it, this time included
}

// late is how many other messages are between a message and its redelivery, if that is late.
const late = 1000

// Source delivers messages at least once. Of twenty one comes twice in a row, as if its producer
// had sent it twice, so that both may be in hand at once; another one is delivered again a thousand
// messages later, although it was acknowledged. What a session has not acknowledged when it ends is
// delivered again, and so is what is given back.
type Source struct {
	payload []byte
	limit   int
	until   time.Time

	mu      sync.Mutex
	made    []string   // all messages
	twins   []twin     // that are due after so many
	ready   []Delivery // that come before anything new
	unacked map[int64]held
	acked   int
	tag     int64
	changed chan struct{}
}

type twin struct {
	due int
	Delivery
}

type held struct {
	Delivery
	by *Session
}

// NewSource returns one that makes up to so many messages, and none after some time if that is not
// zero.
func NewSource(messages int, during time.Duration) *Source {
	s := &Source{limit: messages, unacked: map[int64]held{}, changed: make(chan struct{})}
	s.payload = make([]byte, 200)
	for i := range s.payload {
		s.payload[i] = byte('a' + i%26)
	}
	if during > 0 {
		s.until = time.Now().Add(during)
	}
	return s
}

// Made is how many messages there are.
func (s *Source) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// Acked is how many deliveries were acknowledged.
func (s *Source) Acked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Left returns how many deliveries are not made, or not acknowledged.
func (s *Source) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := len(s.ready) + len(s.twins) + len(s.unacked)
	if !s.over() {
		left++
	}
	return left
}

// next returns a delivery, if there is one at this time.
func (s *Source) next() (d Delivery, ok bool) {
	switch {
	case len(s.ready) > 0:
		d, s.ready = s.ready[0], s.ready[1:]
	case len(s.twins) > 0 && (s.over() || s.twins[0].due <= len(s.made)):
		d, s.twins = s.twins[0].Delivery, s.twins[1:]
	case s.over():
		return Delivery{}, false
	default:
		d = s.make()
	}
	s.tag++
	d.Tag = s.tag
	return d, true
}

func (s *Source) over() bool {
	return len(s.made) >= s.limit || !s.until.IsZero() && time.Now().After(s.until)
}

// make makes a new message, and plans its repetition.
func (s *Source) make() Delivery {
	d := Delivery{ID: newID(), Payload: s.payload, Deliveries: 1}
	switch len(s.made) % 20 {
	case 3:
		s.ready = append(s.ready, d) // sent twice
	case 13:
		again := d
		again.Deliveries = 2
		s.twins = append(s.twins, twin{len(s.made) + late, again})
	}
	s.made = append(s.made, d.ID)
	return d
}

// Session is one consumer of a Source.
type Session struct {
	source *Source
	ended  bool
}

var errEnded = errors.New("the session has ended")

// Open opens one.
func (s *Source) Open() *Session { return &Session{source: s} }

// Fetch returns up to max deliveries. It waits for the first, and returns io.EOF when there will be
// none: all is made and acknowledged.
func (c *Session) Fetch(ctx context.Context, max int) ([]Delivery, error) {
	s := c.source
	for {
		s.mu.Lock()
		var all []Delivery
		for len(all) < max && !c.ended {
			d, ok := s.next()
			if !ok {
				break
			}
			s.unacked[d.Tag] = held{d, c}
			all = append(all, d)
		}
		done, ended, changed := len(s.unacked) == 0, c.ended, s.changed
		s.mu.Unlock()
		switch {
		case ended:
			return nil, errEnded
		case len(all) > 0:
			return all, nil
		case done:
			return nil, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ack says that these deliveries need not come again.
func (c *Session) Ack(_ context.Context, tags ...int64) error {
	return c.settle(tags, func(held) { c.source.acked++ })
}

// Nack gives deliveries back: they come again.
func (c *Session) Nack(_ context.Context, tags ...int64) error { return c.settle(tags, c.source.again) }

func (s *Source) again(h held) {
	h.Deliveries++
	s.ready = append(s.ready, h.Delivery)
}

func (c *Session) settle(tags []int64, settle func(held)) error {
	s := c.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended {
		return errEnded
	}
	for _, tag := range tags {
		if h, ok := s.unacked[tag]; ok && h.by == c {
			delete(s.unacked, tag)
			settle(h)
		}
	}
	s.signal()
	return nil
}

// Close ends the session. The source redelivers what the session has not acknowledged.
func (c *Session) Close() {
	s := c.source
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ended = true
	for tag, h := range s.unacked {
		if h.by == c {
			delete(s.unacked, tag)
			s.again(h)
		}
	}
	s.signal()
}

func (s *Source) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// AwaitAcked waits until so many deliveries are acknowledged.
func (s *Source) AwaitAcked(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		enough, changed := s.acked >= n, s.changed
		s.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
