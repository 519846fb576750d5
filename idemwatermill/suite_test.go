package idemwatermill_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemwatermill"
	"github.com/idem-go/idem/internal/ledger"
	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func TestPublisherKeepsItsPromises(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
}

// choosy is a publisher of Watermill's that refuses some messages, as some do.
type choosy struct{ message.Publisher }

func (c choosy) Publish(topic string, messages ...*message.Message) error {
	switch kind := messages[0].Metadata.Get(idemwatermill.MetadataType); {
	case kind == "panics":
		panic("a bug")
	case kind == "refused":
		return errRefused
	}
	return c.Publisher.Publish(topic, messages...)
}

func newTarget(t testing.TB) outboxtest.Target {
	s, topic := broker(t), uuid.NewString()
	proxy := ledger.Front(t, s.address())
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client(proxy.Addr())}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	config := idemwatermill.PublisherConfig{Blames: func(err error) bool { return errors.Is(err, errRefused) }}
	kind := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Type = name } }
	return outboxtest.Target{
		Publisher: idemwatermill.NewPublisher(choosy{p}, config), Topic: topic, Arrived: reader(s, topic),
		Bad: map[string]func(*outbox.Message){"refused": kind("refused"), "panics": kind("panics")},
		Away: map[string]func() func(){
			"deaf": func() func() {
				proxy.Deafen(true)
				return func() { proxy.Deafen(false); proxy.Cut() }
			},
		},
	}
}

// reader reads the stream, in no group.
func reader(s *server, topic string) func(context.Context) ([]outbox.Message, error) {
	redis, last := client(s.address()), "-"
	return func(ctx context.Context) (all []outbox.Message, err error) {
		entries, err := redis.XRange(ctx, topic, last, "+").Result()
		for _, entry := range entries {
			msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(entry.Values)
			if err != nil {
				return all, err
			}
			all = append(all, messageOf(msg))
			last = "(" + entry.ID
		}
		return all, err
	}
}

func messageOf(msg *message.Message) outbox.Message {
	m := outbox.Message{ID: msg.UUID, Payload: msg.Payload, Headers: map[string]string{}}
	for name, value := range msg.Metadata {
		switch name {
		case idemwatermill.MetadataKey:
			m.Key = value
		case idemwatermill.MetadataType:
			m.Type = value
		default:
			m.Headers[name] = value
		}
	}
	return m
}
