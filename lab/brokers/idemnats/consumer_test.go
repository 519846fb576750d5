package idemnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func publish(t testing.TB, js jetstream.JetStream, messages ...outbox.Message) {
	t.Helper()
	for i := range messages {
		messages[i].Topic = "orders"
	}
	if err := ledger.Publish(ledger.Within(t), idemnats.NewPublisher(js, idemnats.PublisherConfig{}), messages); err != nil {
		t.Fatal(err)
	}
}

func message(id, key string) outbox.Message {
	return outbox.Message{ID: id, Key: key, Payload: []byte(key + id)}
}

func newConsumer(t testing.TB, l *ledger.Ledger, source jetstream.Consumer, handle idemnats.Handler, config idemnats.ConsumerConfig) *idemnats.Consumer {
	t.Helper()
	config.Logger = quiet
	consumer, err := idemnats.NewConsumer(l.Pool, "billing", source, handle, config)
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

func TestConsumer_MayDieBeforeItsAcknowledgment(t *testing.T) {
	t.Parallel()
	b, l := newBroker(t), ledger.New(t)
	js, dying := b.connect(), b.connect()
	stream := newStream(t, js)
	newSource(t, stream, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	publish(t, js, message("1", "a"), message("2", "b"), message("3", ""))

	source, err := dying.Consumer(ledger.Within(t), "ORDERS", "billing")
	if err != nil {
		t.Fatal(err)
	}
	err = newConsumer(t, l, source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		dying.Conn().Close() // no acknowledgment arrives after that
		return l.Record(tx, m)
	}, idemnats.ConsumerConfig{}).Run(ledger.Within(t))
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run returned %v, want %v", err, nats.ErrConnectionClosed)
	}
	if len(l.Payloads()) == 0 {
		t.Error("nothing was committed")
	}

	source, err = js.Consumer(ledger.Within(t), "ORDERS", "billing")
	if err != nil {
		t.Fatal(err)
	}
	ledger.Run(t, newConsumer(t, l, source, record(l), idemnats.ConsumerConfig{}).Run)
	l.WaitForPayloads(3)
	settled(t, source)
	got := l.Payloads()
	slices.Sort(got)
	if diff := cmp.Diff([]string{"3", "a1", "b2"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestConsumer_ExtendsTheDeadlineOfALongHandler(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = 300 * time.Millisecond })
	acks, err := js.Conn().SubscribeSync("$JS.ACK.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	ledger.Run(t, newConsumer(t, l, source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		for range 2 {
			ack, err := acks.NextMsg(ledger.Limit)
			if err != nil {
				return err
			}
			if string(ack.Data) != "+WPI" {
				return fmt.Errorf("%q was the answer before the effect", ack.Data)
			}
		}
		return l.Record(tx, m)
	}, idemnats.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(1)}}).Run)
	publish(t, js, message("1", "a"))
	l.WaitForPayloads(1)
}

func TestNewConsumer_RefusesASourceThatLosesMessages(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	stream := newStream(t, js)
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"AckPolicy":  func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy },
		"AckPolicy ": func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy },
		"MaxDeliver": func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		"priority groups": func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"one"}, time.Minute
		},
	} {
		source := newSource(t, stream, func(c *jetstream.ConsumerConfig) { c.Durable = strings.ReplaceAll(name, " ", "_") }, change)
		_, err := idemnats.NewConsumer(l.Pool, "billing", source, record(l), idemnats.ConsumerConfig{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%v, want an error about %s", err, name)
		}
	}
}

func TestConsumer_ReleasesItsMessagesWhenItStops(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	config := idemnats.ConsumerConfig{Ordered: true, Batch: 5}
	for i := range 20 {
		publish(t, js, message(fmt.Sprintf("%02d", i), "a"))
	}
	begun, stopping := make(chan struct{}, 20), make(chan struct{})
	stop := ledger.Run(t, newConsumer(t, l, source, func(pgx.Tx, inbox.Message, jetstream.Msg) error {
		begun <- struct{}{}
		<-stopping
		return context.Canceled
	}, config).Run)
	<-begun
	time.AfterFunc(10*time.Millisecond, func() { close(stopping) })
	if err := stop(); err != nil {
		t.Error(err)
	}
	ledger.Run(t, newConsumer(t, l, source, record(l), config).Run)
	l.WaitForPayloads(20)
	settled(t, source)
	if got := l.Payloads(); !slices.IsSorted(got) {
		t.Errorf("the order is %q", got)
	}
}

// A message without an ID has the Position as its ID, which each delivery repeats.
func TestConsumer_HandlesMessagesByTheirPositions(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), ledger.New(t)
	source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = 300 * time.Millisecond })
	for _, body := range []string{"same", "same"} {
		if _, err := js.Publish(ledger.Within(t), "orders", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	record := func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		_ = msg.Nak() // for another delivery
		return l.Record(tx, m)
	}
	ledger.Run(t, newConsumer(t, l, source, record, idemnats.ConsumerConfig{ID: idemnats.Position}).Run)
	l.WaitForPayloads(2)
	settled(t, source)
	if diff := cmp.Diff([]string{"same", "same"}, l.Payloads()); diff != "" {
		t.Error(diff)
	}
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool, js = ledger.New(t).Pool, newBroker(t).connect()
		newStream(t, js)
	})
}
