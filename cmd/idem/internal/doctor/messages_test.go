package doctor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

func (w *testDB) addMessage() {
	w.t.Helper()
	err := pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error {
		return outbox.Add(w.t.Context(), tx, outbox.Message{Topic: "orders", Key: "k", Payload: []byte("p")})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// A relay is running while its Publisher is called, and the message is still in the outbox.
func TestDoctor_FindsAnOutboxWithoutARelay(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("relay")
	w.findsNothing("outbox-age")
	w.addMessage()
	w.finds("relay", doctor.Warning, "no relay runs", "outbox.Relay", "Debezium")
	w.findsNothing("outbox-age")
	w.exec("UPDATE idem.outbox SET created_at = now() - interval '12 min'")
	w.finds("outbox-age", doctor.Warning, "for 12 min", "idem outbox list --state held")

	ctx, stop := context.WithCancel(t.Context())
	called, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	relay := outbox.NewRelay(w.pool, outbox.PublisherFunc(func(context.Context, []outbox.Message) error {
		close(called)
		<-goOn
		return nil
	}), outbox.RelayConfig{})
	go func() { ended <- relay.Run(ctx) }()
	<-called
	w.findsNothing("relay")
	w.finds("outbox-age", doctor.Warning, "for 12 min")
	stop()
	close(goOn)
	<-ended
	w.findsNothing("relay")
	w.findsNothing("outbox-age")
}

func TestDoctor_IgnoresDelayedMessagesUntilDue(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.exec(`INSERT INTO idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
		VALUES (now() + interval '1 day', now() - interval '1 day', gen_random_uuid(), 't', '', '')`)
	w.findsNothing("relay")
	w.findsNothing("outbox-age")
	w.exec("UPDATE idem.delayed SET not_before = now() - interval '12 min'")
	w.finds("relay", doctor.Warning, "no relay runs", "outbox.Relay", "Debezium")
	w.finds("outbox-age", doctor.Warning, "for 12 min")
}

func TestTopics_FindsTopicsOfNoRelay(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.addMessage()
	w.findsNothing("topics") // no relay has topics of its own
	relay := func(name, topic string) {
		w.exec("TRUNCATE idem.leases, idem.relays, idem.relay_topics", "INSERT INTO idem.leases VALUES (4711, now() + interval '1 h')",
			"INSERT INTO idem.relays VALUES ('"+name+"', 0, 4711, now(), 1)", "INSERT INTO idem.relay_topics VALUES ('"+name+"', '{"+topic+"}', 1, now())")
	}
	relay("hooks", "webhook.*")
	w.finds("topics", doctor.Warning, `"orders"`, "no relay", "RelayConfig.Topics")
	relay("shop", "ord*")
	w.findsNothing("topics")
	w.exec("TRUNCATE idem.leases")
	w.finds("topics", doctor.Warning, `"orders"`, `"shop"`, "does not run", "idem outbox forget")
}

func TestDoctor_FindsDeadLettersUntilTheyAreRedriven(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("dead-letters")
	outcome, err := inbox.Handle(t.Context(), w.pool, "billing", inbox.Message{Source: "stripe", ID: "evt_1"},
		func(pgx.Tx) error { return errors.New("refused") }, inbox.WithMaxAttempts(1))
	if err != nil || outcome.State != inbox.Dead {
		t.Fatal(outcome, err)
	}
	w.finds("dead-letters", doctor.Warning, "1 dead letters", "could not be handled", "idem dead list --side inbox")
	if err := inbox.Redrive(t.Context(), w.pool, inbox.Ref{Consumer: "billing", Source: "stripe", ID: "evt_1"}); err != nil {
		t.Fatal(err)
	}
	w.findsNothing("dead-letters")
	w.exec(`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
		VALUES ('outbox', '', 'orders', gen_random_uuid()::text, '', '', 'c', 'r', 10, now(), now() - interval '3 h')`)
	w.finds("dead-letters", doctor.Warning, "could not be published", "3 h ago", "idem dead list --side outbox")
}

func TestDoctor_FindsALongFailingMessage(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	handle := func(failure error) {
		outcome, err := inbox.Handle(t.Context(), w.pool, "billing", inbox.Message{Source: "stripe", ID: "evt_1"}, func(pgx.Tx) error { return failure })
		if err != nil || failure == nil && outcome.State != inbox.Done {
			t.Fatal(outcome, err)
		}
	}
	handle(errors.New("refused"))
	w.findsNothing("inbox-failing")
	w.exec("UPDATE idem.inbox SET since = now() - interval '2 h', retry_at = now()")
	w.finds("inbox-failing", doctor.Warning, "1 messages", "for 2 h", `"billing"`, "log of the consumer")
	handle(nil)
	w.findsNothing("inbox-failing")
}
