package idemnats_test

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

func TestDeadLetterThatIsRedrivenIsHandledByTheConsumer(t *testing.T) {
	t.Parallel()
	js, l := newBroker(t).connect(), newBooks(t)
	source := newSource(t, newStream(t, js))
	var mended atomic.Bool
	given := make(chan jetstream.Msg, 1)
	ledger.Run(t, newConsumer(t, l, source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		if !mended.Load() {
			return errPoison
		}
		given <- msg
		return l.enter(tx, m, msg)
	}, idemnats.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(1)}}).Run)
	publish(t, js, outbox.Message{ID: "1", Key: "a/b", Type: "Order Placed", Payload: []byte("{}"), Headers: map[string]string{"Tenant": "7"}})
	l.Wait(`SELECT id FROM idem.dead_letters`, 1)
	mended.Store(true)
	if err := inbox.Redrive(t.Context(), l.Pool, inbox.Ref{Consumer: "billing", Source: "ORDERS", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	l.WaitForLines(1)
	msg := <-given
	want := map[string][]string{"Nats-Msg-Id": {"1"}, "Idem-Key": {"a%2Fb"}, "Idem-Type": {"Order%20Placed"}, "Tenant": {"7"}}
	if diff := cmp.Diff(want, map[string][]string(msg.Headers())); diff != "" || string(msg.Data()) != "{}" || msg.Ack() != nil {
		t.Error(diff)
	}
	l.Wait(`SELECT id FROM idem.inbox WHERE state = 'handled' AND NOT EXISTS (SELECT FROM idem.dead_letters)`, 1)
}
