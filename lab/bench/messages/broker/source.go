package broker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/idem-go/idem/outbox"
)

// Delivery is one delivery of a message.
type Delivery struct {
	Tag        int64 // a number that identifies this delivery
	ID         string
	Payload    []byte
	Deliveries int // number of deliveries of the message so far
}

// late is the number of new messages that come between a message and its late redelivery.
const late = 1000

// Source delivers each message at least once. Of 20 messages, one message is delivered twice in a
// row, as if its producer had sent it twice. Both deliveries may be in progress at the same time.
// Another of the 20 messages is delivered again 1,000 messages later, even if it was acknowledged.
// The source also redelivers messages that a session rejected, or did not acknowledge before the
// end of the session.
type Source struct {
	payload []byte
	limit   int
	until   time.Time

	board
	made    []string   // ids of all messages
	twins   []twin     // messages to be delivered again later, although they may be acknowledged
	ready   []Delivery // deliveries that are due before any new message
	unacked map[int64]held
	acked   int
	tag     int64
}

type twin struct {
	due int
	Delivery
}

type held struct {
	Delivery
	by *Session
}

// NewSource returns a source of at most the given number of messages. If during is not zero, the
// source generates new messages only during that time.
func NewSource(messages int, during time.Duration) *Source {
	s := &Source{limit: messages, board: newBoard(), unacked: map[int64]held{}}
	s.payload = make([]byte, 200)
	for i := range s.payload {
		s.payload[i] = byte('a' + i%26)
	}
	if during > 0 {
		s.until = time.Now().Add(during)
	}
	return s
}

// Made returns the number of distinct messages so far.
func (s *Source) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// Acked returns the number of acknowledged deliveries.
func (s *Source) Acked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Left returns the number of deliveries that are pending or not acknowledged. It adds one if the
// source will generate new messages.
func (s *Source) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := len(s.ready) + len(s.twins) + len(s.unacked)
	if !s.over() {
		left++
	}
	return left
}

// next returns the next delivery. ok is false if there is no delivery at the moment. The caller
// must have locked s.mu.
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

// make generates a new message and schedules its second delivery, if the message gets one.
func (s *Source) make() Delivery {
	d := Delivery{ID: outbox.NewID(), Payload: s.payload, Deliveries: 1}
	switch len(s.made) % 20 {
	case 3:
		s.ready = append(s.ready, d) // the same message again, as if the producer had sent it twice
	case 13:
		again := d
		again.Deliveries = 2
		s.twins = append(s.twins, twin{len(s.made) + late, again})
	}
	s.made = append(s.made, d.ID)
	return d
}

// Session is the connection of one consumer to a Source.
type Session struct {
	source *Source
	ended  bool
}

var errEnded = errors.New("the session has ended")

// Open opens a session for a new consumer.
func (s *Source) Open() *Session { return &Session{source: s} }

// Fetch waits for at least one delivery and returns up to max deliveries. It returns io.EOF when
// all messages have been generated and all deliveries acknowledged.
func (c *Session) Fetch(ctx context.Context, max int) ([]Delivery, error) {
	s := c.source
	var all []Delivery
	var err error
	waited := s.await(ctx, func() bool {
		for len(all) < max && !c.ended {
			d, ok := s.next()
			if !ok {
				break
			}
			s.unacked[d.Tag] = held{d, c}
			all = append(all, d)
		}
		switch {
		case c.ended:
			all, err = nil, errEnded
		case len(all) == 0 && len(s.unacked) == 0:
			err = io.EOF
		}
		return err != nil || len(all) > 0
	})
	return all, cmp.Or(waited, err)
}

// Settle acknowledges the deliveries with the tags in acked. It rejects the deliveries with the
// tags in rejected, and the source delivers their messages again.
func (c *Session) Settle(_ context.Context, acked, rejected []int64) error {
	s := c.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended {
		return errEnded
	}
	for i, tag := range slices.Concat(acked, rejected) {
		h, ok := s.unacked[tag]
		if !ok || h.by != c {
			continue
		}
		delete(s.unacked, tag)
		if i < len(acked) {
			s.acked++
		} else {
			s.again(h)
		}
	}
	s.signal()
	return nil
}

func (s *Source) again(h held) {
	h.Deliveries++
	s.ready = append(s.ready, h.Delivery)
}

// Close ends the session. The source redelivers the messages that the session has not acknowledged.
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

// AwaitAcked waits until n deliveries have been acknowledged.
func (s *Source) AwaitAcked(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return s.acked >= n })
}
