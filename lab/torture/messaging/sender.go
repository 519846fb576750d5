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

// sender is what the relay publishes by.
type sender struct{ *office }

// Publish gives messages to the broker.
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
	refused, err := s.broker.Publish(ctx, sent)
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

// isToSever reports whether the answer to a call is lost: because of a letter for which this process has lost none.
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

// lose returns an error although the broker has what it was sent, or nothing until ctx ends.
func lose(ctx context.Context) error {
	if rand.IntN(4) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return io.ErrUnexpectedEOF
}

var errUnnamed = errors.New("the broker does not want something")

// slowness is how long a slow destination takes for a call.
const slowness = 3 * time.Second

// divider is a sender that has a destination for each topic, or panics.
type divider struct{ *sender }

// Destination names it.
func (d divider) Destination(topic string) string {
	if topic == letter.Nowhere && !d.calm {
		panic("there is no such tenant")
	}
	return topic
}

// publisher is a divider on an ordinary day, and otherwise in every other process. Without a broker it is whoever reads the topics.
func (o *office) publisher() (outbox.Publisher, error) {
	if o.Direct {
		return o.consumers()
	}
	if o.Quiet || o.Slot%2 == 0 {
		return divider{&sender{o}}, nil
	}
	return &sender{o}, nil
}

// blameless is an error of a Publisher that blames no message.
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

// altered reports whether a message is not what was put into the outbox.
func altered(m *outbox.Message, l *letter.Letter) bool {
	return m.ID != l.ID || m.Topic != l.Topic || m.Key != l.Key || m.Type != "letter" || m.Headers["cause"] != l.Cause
}
