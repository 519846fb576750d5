package idemnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

func newConsumer(t testing.TB, l testLedger, source jetstream.Consumer, handle idemnats.Handler, config idemnats.ConsumerConfig) *idemnats.Consumer {
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
	b, l := newBroker(t), newLedger(t)
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
		return l.record(tx, m, msg)
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
	ledger.Run(t, newConsumer(t, l, source, l.record, idemnats.ConsumerConfig{}).Run)
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
	js, l := newBroker(t).connect(), newLedger(t)
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
		return l.record(tx, m, msg)
	}, idemnats.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(1)}}).Run)
	publish(t, js, message("1", "a"))
	l.WaitForPayloads(1)
}

func TestConsumer_DeadLettersAMessageWithoutID(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
	stream := newStream(t, js)
	source := newSource(t, stream)
	for range 2 {
		if _, err := js.Publish(ledger.Within(t), "orders", []byte("no id")); err != nil {
			t.Fatal(err)
		}
	}
	stop := ledger.Run(t, newConsumer(t, l, source, l.record, idemnats.ConsumerConfig{}).Run)
	l.Wait(`SELECT id FROM idem.dead_letters`, 1)
	settled(t, source)
	stop()
	if got := l.Payloads(); len(got) > 0 {
		t.Errorf("a message without an ID had an effect: %q", got)
	}
	another := newSource(t, stream, func(c *jetstream.ConsumerConfig) { c.Durable = "another" })
	ledger.Run(t, newConsumer(t, l, another, l.record, idemnats.ConsumerConfig{ID: idemnats.Position}).Run)
	l.WaitForPayloads(2)
	settled(t, another)
}

func TestConsumer_DeadLettersAMessageWhoseIDPanics(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
	source := newSource(t, newStream(t, js))
	id := func(msg jetstream.Msg) string {
		if string(msg.Data()) == "bad" {
			panic("a bug")
		}
		return idemnats.Position(msg)
	}
	ledger.Run(t, newConsumer(t, l, source, l.record, idemnats.ConsumerConfig{ID: id}).Run)
	for _, body := range []string{"bad", "good"} {
		if _, err := js.Publish(ledger.Within(t), "orders", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	l.Wait(`SELECT id FROM idem.dead_letters`, 1)
	settled(t, source)
	l.WaitForPayloads(1)
}

func TestConsumer_DeadLettersAMismatch(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
	source := newSource(t, newStream(t, js))
	ledger.Run(t, newConsumer(t, l, source, l.record, idemnats.ConsumerConfig{ID: func(jetstream.Msg) string { return "same" }}).Run)
	publish(t, js, message("1", "a"), message("2", "a"), message("1", "a"))
	l.Wait(`SELECT id FROM idem.dead_letters WHERE class = 'mismatch'`, 1)
	settled(t, source)
	if diff := cmp.Diff([]string{"a1"}, l.Payloads()); diff != "" {
		t.Error(diff)
	}
}

func TestNewConsumer_RefusesASourceThatLosesMessages(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
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
		_, err := idemnats.NewConsumer(l.Pool, "billing", source, l.record, idemnats.ConsumerConfig{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%v, want an error about %s", err, name)
		}
	}
}

func TestConsumer_ReleasesItsMessagesWhenItStops(t *testing.T) {
	t.Parallel()
	for name, ordered := range map[string]bool{"in order": true, "without order": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, l := newBroker(t).connect(), newLedger(t)
			source := newSource(t, newStream(t, js), func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
			config := idemnats.ConsumerConfig{Ordered: ordered, Batch: 5}
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
			ledger.Run(t, newConsumer(t, l, source, l.record, config).Run)
			l.WaitForPayloads(20)
			settled(t, source)
			if got := l.Payloads(); ordered && !slices.IsSorted(got) {
				t.Errorf("the order is %q", got)
			}
		})
	}
}

func TestConsumer_KeepsItsMessagesWhilePaused(t *testing.T) {
	t.Parallel()
	const all, failures = 60, 5
	for name, ordered := range map[string]bool{"in order": true, "without order": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, l := newBroker(t).connect(), newLedger(t)
			source := newSource(t, newStream(t, js))
			for i := range all {
				publish(t, js, message(strconv.Itoa(i), strconv.Itoa(i)))
			}
			ledger.Run(t, newConsumer(t, l, source, func(pgx.Tx, inbox.Message, jetstream.Msg) error {
				return errPoison
			}, idemnats.ConsumerConfig{Ordered: ordered, Batch: all, Options: []inbox.Option{
				inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(failures, time.Hour),
			}}).Run)
			l.Wait(`SELECT id FROM idem.inbox WHERE state = 'failing'`, failures)
			for deadline := time.Now().Add(ledger.Limit); ; {
				info, err := source.Info(ledger.Within(t))
				if err != nil {
					t.Fatal(err)
				}
				if info.NumPending == 0 && info.NumAckPending == all {
					if info.NumRedelivered > 0 {
						t.Errorf("%d messages were delivered again", info.NumRedelivered)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d messages are unacknowledged, want %d", info.NumAckPending, all)
				}
			}
			if diff := cmp.Diff([]string{strconv.Itoa(failures)}, l.Query(`SELECT sum(attempts)::text FROM idem.inbox`)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConsumer_ReceivesWhileMessagesAreRetried(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
	source := newSource(t, newStream(t, js))
	for i := range 20 {
		publish(t, js, message(fmt.Sprint("bad", i), fmt.Sprint(i)))
	}
	ledger.Run(t, newConsumer(t, l, source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		if strings.HasPrefix(m.ID, "bad") {
			return errPoison
		}
		return l.record(tx, m, msg)
	}, idemnats.ConsumerConfig{Ordered: true, Options: []inbox.Option{
		inbox.WithBackoff(time.Millisecond, time.Millisecond), inbox.WithMaxAttempts(1 << 20), inbox.WithCircuit(0, 0),
	}}).Run)
	for i := range 5 {
		publish(t, js, message(strconv.Itoa(i), "good"))
		l.WaitForPayloads(i + 1)
	}
}

func TestConsumer_HandlesRedrivenDeadLetters(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newLedger(t)
	source := newSource(t, newStream(t, js))
	var repaired atomic.Bool
	got := make(chan jetstream.Msg, 1)
	ledger.Run(t, newConsumer(t, l, source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		if !repaired.Load() {
			return errPoison
		}
		got <- msg
		return l.record(tx, m, msg)
	}, idemnats.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(1)}}).Run)
	publish(t, js, outbox.Message{ID: "1", Key: "a/b", Type: "Order Placed", Payload: []byte("{}"), Headers: map[string]string{"Tenant": "7"}})
	l.Wait(`SELECT id FROM idem.dead_letters`, 1)
	repaired.Store(true)
	if err := inbox.Redrive(t.Context(), l.Pool, inbox.Ref{Consumer: "billing", Source: "ORDERS", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	l.WaitForPayloads(1)
	msg := <-got
	want := map[string][]string{"Nats-Msg-Id": {"1"}, "Idem-Key": {"a%2Fb"}, "Idem-Type": {"Order%20Placed"}, "Tenant": {"7"}}
	if diff := cmp.Diff(want, map[string][]string(msg.Headers())); diff != "" || string(msg.Data()) != "{}" || msg.Ack() != nil {
		t.Error(diff)
	}
	l.Wait(`SELECT id FROM idem.inbox WHERE state = 'handled' AND NOT EXISTS (SELECT FROM idem.dead_letters)`, 1)
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool, js = newLedger(t).Pool, newBroker(t).connect()
		newStream(t, js)
	})
}
