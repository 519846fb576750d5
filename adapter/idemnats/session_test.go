package idemnats

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox/pull"
)

// again is a delivery of message 7 of a stream.
type again struct {
	jetstream.Msg
	n uint64
}

func (a again) Headers() nats.Header { return nil }
func (a again) Data() []byte         { return nil }
func (a again) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumDelivered: a.n, Sequence: jetstream.SequencePair{Stream: 7}}, nil
}

func TestSession_SettlesTheLatestDeliveryOfAMessage(t *testing.T) {
	t.Parallel()
	s := &session{
		Consumer: &Consumer{loop: &pull.Consumer[jetstream.Msg]{}}, wake: make(chan struct{}, 1),
		waiting: map[uint64]*delivery{}, held: map[uint64]jetstream.Msg{},
	}
	s.put(again{n: 1})
	received, _ := s.admit(t.Context())
	s.put(again{n: 2})
	if more, _ := s.admit(t.Context()); len(received) != 1 || len(more) != 0 {
		t.Fatalf("%d and then %d deliveries were received, want 1 and 0", len(received), len(more))
	}
	if msg := s.remove(received[0]); msg != (again{n: 2}) || len(s.held) > 0 {
		t.Errorf("settled is %v, and %d messages are held", msg, len(s.held))
	}
}
