package idemamqp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func TestPublisher_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	rabbit(t)
	outboxtest.Run(t, outboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
}

func newTarget(t testing.TB) outboxtest.Target {
	n := rabbit(t)
	q, full := queue(t, n, nil), queue(t, n, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	proxy := ledger.Proxy(t, fmt.Sprintf("127.0.0.1:%d", n.port))
	p := publisher(t, n.at(proxy.Addr()), idemamqp.PublisherConfig{Route: func(m outbox.Message) (string, string) {
		switch m.Topic {
		case "panics":
			panic("a bug")
		case "no exchange":
			return rand.Text(), m.Topic
		}
		return "", m.Topic
	}})
	eventually(t, "the queue to be full", func() bool {
		return p.Publish(within(t), []outbox.Message{message(full, "", "filler")}) != nil
	})
	topic := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Topic = name } }
	return outboxtest.Target{
		Publisher: p, Topic: q, Arrived: reader(channel(t, n), q),
		Bad: map[string]func(*outbox.Message){
			"no queue": topic(rand.Text()), "no exchange": topic("no exchange"), "its route panics": topic("panics"), "a full queue": topic(full),
			"a long name": func(m *outbox.Message) { m.Headers = map[string]string{strings.Repeat("x", 256): ""} },
		},
		Away: map[string]func() func(){
			"short of memory": func() func() { // such a broker reads nothing, possibly for hours
				proxy.Deafen(true)
				return func() { proxy.Deafen(false); proxy.Cut() }
			},
			"gone": func() func() { proxy.Close(); return nil },
		},
	}
}

// reader returns a function that takes messages from the queue.
func reader(ch *amqp.Channel, queue string) func(context.Context) ([]outbox.Message, error) {
	return func(context.Context) (all []outbox.Message, err error) {
		for {
			d, ok, err := ch.Get(queue, true)
			if !ok || err != nil {
				return all, err
			}
			m := outbox.Message{ID: d.MessageId, Type: d.Type, Payload: d.Body, Headers: map[string]string{}}
			for name, value := range d.Headers {
				if text, isText := value.(string); isText {
					m.Headers[name] = text
				}
			}
			m.Key = m.Headers[idemamqp.HeaderKey]
			delete(m.Headers, idemamqp.HeaderKey)
			all = append(all, m)
		}
	}
}

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	inboxtest.Run(t, inboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
		q, ch, p := queue(t, n, amqp.Table{"x-single-active-consumer": true}), channel(t, n), publisher(t, n.url(), idemamqp.PublisherConfig{})
		config := idemamqp.ConsumerConfig{Ordered: true, Batch: 7, Logger: slog.New(slog.DiscardHandler)}
		return inboxtest.Source{
			Name: "books", Ordered: true,
			Deliver: func(ctx context.Context, messages ...inbox.Message) error {
				return ledger.Publish(ctx, p, ledger.Outgoing(q, messages))
			},
			Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
				config := config
				config.Options = options
				enter := func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error {
					if d.MessageId != m.ID || d.Type != m.Type || !bytes.Equal(d.Body, m.Payload) || m.Key != "" && d.Headers[idemamqp.HeaderKey] != m.Key {
						t.Errorf("message %+v comes with %+v", m, d)
					}
					return handle(tx, m)
				}
				c, err := idemamqp.NewConsumer(pool, "books", n.url(), q, enter, config)
				if err != nil {
					return err
				}
				return c.Run(ctx)
			},
			Left: func(context.Context) (int, error) {
				state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
				return state.Messages, err
			},
		}
	}})
}
