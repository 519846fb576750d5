package idemwatermill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func TestPublisher_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
}

// selectivePublisher refuses messages by their type.
type selectivePublisher struct{ message.Publisher }

func (c selectivePublisher) Publish(topic string, messages ...*message.Message) error {
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
	proxy := ledger.Proxy(t, s.address())
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client(proxy.Addr())}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	config := idemwatermill.PublisherConfig{Blames: func(err error) bool { return errors.Is(err, errRefused) }}
	kind := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Type = name } }
	return outboxtest.Target{
		Publisher: idemwatermill.NewPublisher(selectivePublisher{p}, config), Topic: topic, Arrived: reader(s, topic),
		Bad: map[string]func(*outbox.Message){"refused": kind("refused"), "panics": kind("panics")},
		Away: map[string]func() func(){
			"deaf": func() func() {
				proxy.Deafen(true)
				return func() { proxy.Deafen(false); proxy.Cut() }
			},
		},
	}
}

// reader returns a function that reads the stream without a group.
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

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
		s, topic := broker(t), uuid.NewString()
		p := publisher(t, s.address())
		return inboxtest.Source{
			Name: "books",
			Deliver: func(ctx context.Context, messages ...inbox.Message) error {
				return ledger.Publish(ctx, p, ledger.Outgoing(topic, messages))
			},
			Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
				return runHandler(ctx, s, topic, pool, handle, options)
			},
			Left: func(ctx context.Context) (int, error) {
				groups, err := client(s.address()).XInfoGroups(ctx, topic).Result()
				if err != nil || len(groups) == 0 {
					return 0, err
				}
				return int(groups[0].Pending + groups[0].Lag), nil
			},
		}
	}})
}

// runHandler runs a handler in a router and, at the same time, RunRedrives.
func runHandler(ctx context.Context, s *server, topic string, pool *pgxpool.Pool, handle inboxtest.Handle, options []inbox.Option) error {
	enter := func(tx pgx.Tx, msg *message.Message) error {
		msg.Ack() // the message is a copy
		m, _ := inbox.MessageOf(inbox.Context(tx))
		if got := messageOf(msg); got.ID != m.ID || got.Key != m.Key || got.Type != m.Type || !bytes.Equal(got.Payload, m.Payload) {
			panic(fmt.Sprintf("message %+v comes with %+v", m, got))
		}
		return handle(tx, m)
	}
	config := idemwatermill.HandlerConfig{Options: options, Logger: slog.New(slog.DiscardHandler)}
	router, err := newRouter(s.address(), topic, idemwatermill.Handler(pool, "books", enter, config))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- idemwatermill.RunRedrives(ctx, pool, "books", enter, config) }()
	return errors.Join(router.Run(ctx), <-ended)
}
