package idemwatermill_test

import (
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
	"github.com/idem-go/idem/outbox"
)

// Redis redelivers a message if its acknowledgment is lost.
func TestConsumer_HandlesOnceAfterALostAcknowledgment(t *testing.T) {
	t.Parallel()
	s, l := broker(t), ledger.New(t)
	topic := uuid.NewString()
	proxy := ledger.Proxy(t, s.address())
	if err := publisher(t, s.address()).Publish(ledger.Within(t), []outbox.Message{newMessage(topic, "", "only")}); err != nil {
		t.Fatal(err)
	}
	record := func(tx pgx.Tx, msg *message.Message) error {
		m, _ := inbox.MessageOf(inbox.Context(tx))
		return l.Record(tx, m)
	}
	consume := func(addr string, handle func(pgx.Tx, *message.Message) error) (stop func() error) {
		router, err := newRouter(addr, topic, idemwatermill.Handler(l.Pool, "books", handle, quick(t)))
		if err != nil {
			t.Fatal(err)
		}
		return ledger.Run(t, router.Run)
	}
	handled := make(chan struct{})
	stop := consume(proxy.Addr(), func(tx pgx.Tx, msg *message.Message) error {
		proxy.Deafen(true)
		close(handled)
		return record(tx, msg)
	})
	<-handled
	l.WaitForPayloads(1)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if unacknowledged(t, s, topic) != 1 {
		t.Error("the acknowledgment was not lost")
	}
	consume(s.address(), record)
	eventually(t, "all to be acknowledged", func() bool { return unacknowledged(t, s, topic) == 0 })
	if diff := cmp.Diff([]string{"only"}, l.Payloads()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
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
