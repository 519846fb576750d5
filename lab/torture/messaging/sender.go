package messaging

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/outbox"
)

// sender is the Publisher of the relay.
type sender struct{ *office }

// Publish sends messages to the broker. It may fail without naming a message, or lose the answer.
func (s *sender) Publish(ctx context.Context, messages []outbox.Message) error {
	var sent []broker.Sent
	for _, m := range messages {
		l, err := letter.Decode(m.Payload)
		sent = append(sent, broker.Sent{Letter: l, Altered: err != nil || altered(&m, &l)})
	}
	if !s.calm && !s.Quiet && rand.IntN(200) == 0 {
		return blameless()
	}
	if messages[0].Topic == letter.Slow && !s.calm {
		time.Sleep(slowness)
	}
	refused, err := broker.Publish.Send(ctx, s.broker, sent)
	if err == nil && s.isToSever(sent) {
		return lose(ctx)
	}
	if err != nil || len(refused) == 0 {
		return err
	}
	failed := map[string]error{}
	for _, l := range sent {
		if l.Fate == letter.Unnamed && !s.calm {
			return errUnnamed
		}
	}
	for id, why := range refused {
		failed[id] = errors.New(why)
	}
	return &outbox.PublishError{Failed: failed}
}

// isToSever reports whether the answer of the broker is lost: once in this process for each letter
// with the fate Severed.
func (s *sender) isToSever(sent []broker.Sent) bool {
	for _, l := range sent {
		if l.Fate == letter.Severed && !s.calm {
			if _, was := s.severed.LoadOrStore(l.ID, true); !was {
				return true
			}
		}
	}
	return false
}

// lose returns an error although the broker took the letters. It may block until ctx ends.
func lose(ctx context.Context) error {
	if rand.IntN(4) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return io.ErrUnexpectedEOF
}

var errUnnamed = errors.New("the broker does not want something")

// slowness is the duration of a call to a slow destination.
const slowness = 3 * time.Second

// divider is a sender with a destination for each topic. Destination panics for letter.Nowhere.
type divider struct{ *sender }

// Destination returns the destination of a topic.
func (d divider) Destination(topic string) string {
	if topic == letter.Nowhere && !d.calm {
		panic("there is no such tenant")
	}
	return topic
}

// publisher returns the Publisher of this process: the direct consumers if there is no broker, a
// divider in a run without faults and in every other process, and otherwise a sender.
func (o *office) publisher() (outbox.Publisher, error) {
	if o.Direct {
		return o.consumers()
	}
	if o.Quiet || o.Slot%2 == 0 {
		return divider{&sender{o}}, nil
	}
	return &sender{o}, nil
}

// blameless returns an error that names no message, or panics.
func blameless() error {
	errs := []error{
		context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNREFUSED,
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}, errors.New("the client of the broker is closed"),
	}
	n := rand.IntN(len(errs) + 1)
	if n == len(errs) {
		panic("the client of the broker has a defect")
	}
	return errs[n]
}

// altered reports whether a message differs from what was added to the outbox.
func altered(m *outbox.Message, l *letter.Letter) bool {
	return m.ID != l.ID || m.Topic != l.Topic || m.Key != l.Key || m.Type != "letter" || m.Headers["cause"] != l.Cause
}
