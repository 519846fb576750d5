package idemnats_test

import (
	"bytes"
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
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

func newTarget(t testing.TB) outboxtest.Target {
	b := newBroker(t)
	js := b.connect()
	stream := newStream(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 400 << 10 })
	if _, err := js.Conn().Subscribe("service", func(m *nats.Msg) { _ = m.Respond([]byte(`{"hello":"you"}`)) }); err != nil {
		t.Fatal(err)
	}
	subject := func(m outbox.Message) string {
		if m.Topic == "panics" {
			panic("a bug")
		}
		return m.Topic
	}
	return outboxtest.Target{
		Publisher: idemnats.NewPublisher(js, idemnats.PublisherConfig{Subject: subject, Timeout: time.Second}), Topic: "orders", Arrived: reader(b.connect()),
		Bad: badMessages(), Away: outages(t, b, js, stream.CachedInfo().Config),
	}
}

// reader returns a function that reads the stream without a consumer.
func reader(js jetstream.JetStream) func(ctx context.Context) ([]outbox.Message, error) {
	next := uint64(1)
	return func(ctx context.Context) (all []outbox.Message, err error) {
		stream, err := js.Stream(ctx, "ORDERS")
		if err != nil {
			return nil, err
		}
		for ; next <= stream.CachedInfo().State.LastSeq; next++ {
			msg, err := stream.GetMsg(ctx, next)
			if err != nil {
				return all, err
			}
			all = append(all, messageOf(msg))
		}
		return all, nil
	}
}

func messageOf(msg *jetstream.RawStreamMsg) outbox.Message {
	m := outbox.Message{ID: msg.Header.Get("Nats-Msg-Id"), Payload: msg.Data, Headers: map[string]string{}}
	m.Key, _ = url.PathUnescape(msg.Header.Get("Idem-Key"))
	m.Type, _ = url.PathUnescape(msg.Header.Get("Idem-Type"))
	for name, values := range msg.Header {
		if !strings.HasPrefix(name, "Nats-") && !strings.HasPrefix(name, "Idem-") {
			m.Headers[name] = values[0]
		}
	}
	return m
}

func badMessages() map[string]func(*outbox.Message) {
	topic := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Topic = name } }
	header := func(name, value string) func(*outbox.Message) {
		return func(m *outbox.Message) { m.Headers = map[string]string{name: value} }
	}
	size := func(n int) func(*outbox.Message) { return func(m *outbox.Message) { m.Payload = make([]byte, n) } }
	return map[string]func(*outbox.Message){
		"too large for the stream": size(500 << 10), "too large for the server": size(2 << 20),
		"no stream has its topic": topic("returns"), "a topic that is no subject": topic("orders placed"), "a topic that is a wildcard": topic("orders.*"),
		"a topic of the server's own": topic("$JS.API.STREAM.PURGE.ORDERS"), "a topic that is an inbox": topic("_INBOX.x"),
		"a topic that a service answers": topic("service"), "a topic whose subject panics": topic("panics"),
		"a header of the broker's": header("nats-rollup", "all"), "a header that would be changed": header("A", "b\r\nNats-Rollup: all"),
		"a name of a header that is none": header("A:b", "c"),
	}
}

func outages(t testing.TB, b *broker, js jetstream.JetStream, config jetstream.StreamConfig) map[string]func() func() {
	limit := func(messages int64) {
		config.MaxMsgs, config.Discard = messages, jetstream.DiscardNew
		if _, err := js.UpdateStream(ledger.Within(t), config); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func() func(){
		"down": func() func() { b.stop(); return b.start },
		"without JetStream": func() func() {
			if err := b.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
			return func() { b.stop(); b.start() }
		},
		"full":   func() func() { limit(1); return func() { limit(-1) } },
		"closed": func() func() { js.Conn().Close(); return nil },
	}
}

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, ordered := range map[string]bool{"in order": true, "without order": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Run(t, inboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
				return newConsumerSource(t, pool, ordered)
			}})
		})
	}
}

func newConsumerSource(t testing.TB, pool *pgxpool.Pool, ordered bool) inboxtest.Source {
	js := newBroker(t).connect()
	source := newSource(t, newStream(t, js, func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }), func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }) // a consumer that stops has to release its messages
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	return inboxtest.Source{
		Name: "billing", Ordered: ordered,
		Deliver: func(ctx context.Context, messages ...inbox.Message) error {
			return ledger.Publish(ctx, publisher, ledger.Outgoing("orders", messages))
		},
		Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
			config := idemnats.ConsumerConfig{Ordered: ordered, Batch: 7, Options: options, Logger: quiet}
			enter := func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
				raw := messageOf(&jetstream.RawStreamMsg{Header: msg.Headers(), Data: msg.Data()})
				if raw.ID != m.ID || raw.Key != m.Key || raw.Type != m.Type || !bytes.Equal(raw.Payload, m.Payload) {
					t.Errorf("message %+v comes with %+v", m, raw)
				}
				return handle(tx, m)
			}
			consumer, err := idemnats.NewConsumer(pool, "billing", source, enter, config)
			if err != nil {
				return err
			}
			return consumer.Run(ctx)
		},
		Left: func(ctx context.Context) (int, error) {
			info, err := source.Info(ctx)
			if err != nil {
				return 0, err
			}
			return info.NumAckPending + int(info.NumPending), nil
		},
	}
}
