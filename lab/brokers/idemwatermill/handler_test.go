package idemwatermill_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

// Redis redelivers a message if its acknowledgment is lost.
func TestConsumer_HandlesOnceAfterALostAcknowledgment(t *testing.T) {
	t.Parallel()
	s, pool := broker(t), newPool(t)
	topic := uuid.NewString()
	proxy := ledger.Proxy(t, s.address())
	publish(t, s, newMessage(topic, "", "only"))
	handled := make(chan struct{})
	stop := run(t, proxy.Addr(), topic, idemwatermill.Handler(pool, "books", func(tx pgx.Tx, msg *message.Message) error {
		proxy.Deafen(true)
		close(handled)
		return record(tx, msg)
	}, quick(t)))
	<-handled
	wantEffects(t, pool, "only")
	stop()
	if unacknowledged(t, s, topic) != 1 {
		t.Error("the acknowledgment was not lost")
	}
	run(t, s.address(), topic, idemwatermill.Handler(pool, "books", record, quick(t)))
	eventually(t, "all to be acknowledged", func() bool { return unacknowledged(t, s, topic) == 0 })
	wantEffects(t, pool, "only")
}

func TestHandler_DeadLettersAMessageWithoutUUID(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	config := quick(t)
	name := func(id string) func(*message.Message) inbox.Message {
		return func(msg *message.Message) inbox.Message {
			return inbox.Message{Source: "orders", ID: id, Payload: msg.Payload}
		}
	}
	for _, id := range []string{"", "order 7", "order 7"} {
		config.Message = name(id)
		if err := idemwatermill.Handler(pool, "books", record, config)(message.NewMessage("", []byte("nameless"))); err != nil {
			t.Error(err)
		}
	}
	wantEffects(t, pool, "nameless")
	if n := count(t, pool, `SELECT count(*) FROM idem.dead_letters WHERE payload = 'nameless' AND class = 'invalid'`); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

func TestRunRedrives_HandlesRedrivenDeadLetters(t *testing.T) {
	t.Parallel()
	pool, config := newPool(t), quick(t, inbox.WithMaxAttempts(1))
	m := inbox.Message{Source: "orders", ID: "1", Key: "k", Type: "Ordered", Headers: map[string]string{"tenant": "7"}, Payload: []byte("mended")}
	_, err := inbox.Handle(t.Context(), pool, "books", m, func(pgx.Tx) error { return errors.New("cannot be read") }, config.Options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := inbox.Redrive(t.Context(), pool, inbox.Ref{Consumer: "books", Source: "orders", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	got, ended := make(chan *message.Message, 1), make(chan error, 1)
	go func() {
		ended <- idemwatermill.RunRedrives(ctx, pool, "books", func(tx pgx.Tx, msg *message.Message) error {
			got <- msg
			return record(tx, msg)
		}, config)
	}()
	wantEffects(t, pool, "mended")
	msg := <-got
	want := message.Metadata{"idem-key": "k", "idem-type": "Ordered", "tenant": "7"}
	if diff := cmp.Diff(want, msg.Metadata); diff != "" || msg.UUID != "1" {
		t.Errorf("%s: %s", msg.UUID, diff)
	}
	eventually(t, "no dead letter", func() bool { return count(t, pool, `SELECT count(*) FROM idem.dead_letters`) == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE invoices (customer text, body text)`); err != nil {
			t.Fatal(err)
		}
	})
}
