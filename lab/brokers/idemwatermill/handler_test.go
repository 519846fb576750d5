package idemwatermill_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
)

// The commit is what counts: what Redis does not hear of, it delivers to another one.
func TestLostAcknowledgementDoublesNothing(t *testing.T) {
	t.Parallel()
	s, pool := broker(t), newPool(t)
	topic := uuid.NewString()
	proxy := ledger.Front(t, s.address())
	publish(t, s, said(topic, "", "only"))
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
		t.Error("the acknowledgement was not lost")
	}
	run(t, s.address(), topic, idemwatermill.Handler(pool, "books", record, quick(t)))
	eventually(t, "all to be acknowledged", func() bool { return unacknowledged(t, s, topic) == 0 })
	wantEffects(t, pool, "only")
}

func TestMessageWithoutAUUIDIsADeadLetterUnlessTheHandlerKnowsAnID(t *testing.T) {
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
