package post

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"

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
	refused, err := s.broker.Publish(ctx, sent)
	if err != nil || len(refused) == 0 {
		return err
	}
	failed := map[string]error{}
	for id, why := range refused {
		failed[id] = errors.New(why)
	}
	return &outbox.PublishError{Failed: failed}
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
