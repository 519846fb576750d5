package idemamqp_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

func publish(t testing.TB, n *node, messages ...outbox.Message) {
	t.Helper()
	if err := ledger.Publish(within(t), publisher(t, n.url(), idemamqp.PublisherConfig{}), messages); err != nil {
		t.Fatal(err)
	}
}

// A quorum queue may drop a message after a number of deliveries. An attempt is no delivery.
func TestConsumer_KeepsFailedMessagesUnacknowledged(t *testing.T) {
	t.Parallel()
	n, l := rabbit(t), ledger.New(t)
	q := queue(t, n, amqp.Table{"x-delivery-limit": 2})
	publish(t, n, message(q, "a", "slow"), message(q, "b", "quick"), message(q, "c", "quick too"))
	attempts := 0
	c, err := idemamqp.NewConsumer(l.Pool, "books", n.url(), q, func(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
		if string(m.Payload) == "slow" {
			if attempts++; attempts < 6 {
				return errors.New("not yet")
			}
		}
		return l.Record(tx, m)
	}, idemamqp.ConsumerConfig{
		Options: []inbox.Option{ledger.Quick}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := ledger.Run(t, c.Run)
	l.WaitForPayloads(3)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"quick", "quick too", "slow"}, l.Payloads()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

func TestConsumer_DeadLettersAMessageThatKills(t *testing.T) {
	t.Parallel()
	n, l := rabbit(t), ledger.New(t)
	q := queue(t, n, nil)
	publish(t, n, message(q, "a", "before"), message(q, "b", "deadly"), message(q, "c", "behind"))
	deaths := 0
	for ended := false; !ended; {
		p, err := ledger.Start("victim", t.Output(), ledger.Env(l.Pool.Config().ConnString(), n.url(), q)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		eventually(t, "it to be killed, or not any more", func() bool {
			select {
			case <-p.Done():
				deaths++
				return true
			default:
				ended = len(l.Query(`SELECT id FROM idem.dead_letters WHERE payload = 'deadly' AND class = 'killed'`)) == 1
				return ended
			}
		})
	}
	l.WaitForPayloads(2)
	got := l.Payloads() // redeliveries are tried after new messages
	slices.Sort(got)
	if diff := cmp.Diff([]string{"before", "behind"}, got); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	if deaths < 2 || deaths > 5 {
		t.Errorf("%d processes were killed", deaths)
	}
}

// The broker redelivers a message whose acknowledgment is lost, on another connection.
func TestConsumer_HandlesOnceAfterALostAcknowledgment(t *testing.T) {
	t.Parallel()
	n, l := rabbit(t), ledger.New(t)
	q, proxy := queue(t, n, nil), ledger.Proxy(t, fmt.Sprintf("127.0.0.1:%d", n.port))
	c, err := idemamqp.NewConsumer(l.Pool, "books", n.at(proxy.Addr()), q, func(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
		proxy.Deafen(true) // until the connection is cut
		return l.Record(tx, m)
	}, idemamqp.ConsumerConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ledger.Run(t, c.Run)
	for i, body := range []string{"only", "next"} {
		publish(t, n, message(q, "", body))
		l.WaitForPayloads(i + 1)
		proxy.Deafen(false)
		proxy.Cut()
	}
	if diff := cmp.Diff([]string{"only", "next"}, l.Payloads()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}
