package idemotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// relay adds a message, which the broker refuses once and then accepts.
func relay(t *testing.T, s *seen, pool *pgxpool.Pool, m outbox.Message) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, m) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	calls := 0
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		if calls++; calls == 1 {
			return &outbox.PublishError{Failed: map[string]error{messages[0].ID: errors.New("refused, Ada")}}
		}
		stop()
		return nil
	})
	ended := make(chan error, 1)
	r := outbox.NewRelay(pool, publisher, outbox.RelayConfig{Observer: s.observer(), MinPause: time.Millisecond})
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatal("the relay does not end")
	}
}

func TestObserver_CountsPublishedMessages(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	relay(t, s, pool, outbox.Message{Topic: "orders", Key: "k", Payload: []byte("p")})
	values := s.values()
	for _, name := range []string{
		"idem.outbox.messages idem.outcome=published", "idem.outbox.messages idem.outcome=failed",
		"idem.outbox.publish.duration idem.outcome=published", "idem.outbox.publish.duration idem.outcome=failed",
		"messaging.client.operation.duration messaging.operation.name=publish messaging.system=idem",
		"messaging.client.operation.duration error.type=failed messaging.operation.name=publish messaging.system=idem",
	} {
		if values[name] != 1 {
			t.Errorf("%s is %v: %v", name, values[name], values)
		}
	}
	s.observer().TracePublished(t.Context(), outbox.TracePublishedData{Given: 10, Published: 3, Failed: 2, Duration: time.Second, Err: errors.New("away")})
	if n := s.values()["idem.outbox.messages idem.outcome=away"]; n != 5 {
		t.Errorf("%v messages wait for what is away", n)
	}
	before := s.values()
	s.observer().TracePublished(t.Context(), outbox.TracePublishedData{Failed: 1}) // found after the calls of the publisher
	after := s.values()
	const calls, attempts = "idem.outbox.publish.duration idem.outcome=failed", "idem.outbox.messages idem.outcome=failed"
	if after[calls] != before[calls] || after[attempts] != before[attempts]+1 {
		t.Errorf("an attempt without a call makes %v calls of %v, %v attempts of %v", after[calls], before[calls], after[attempts], before[attempts])
	}
}

func TestObserver_CountsHandledMessages(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	observed := inbox.WithObserver(s.observer())
	handle := func(id string, failure error, opts ...inbox.Option) {
		_, err := inbox.Handle(t.Context(), pool, "billing", inbox.Message{Source: "s", ID: id}, func(pgx.Tx) error { return failure }, append(opts, observed)...)
		if err != nil {
			t.Fatal(err)
		}
	}
	handle("a", nil)
	const name = "idem.inbox.messages idem.consumer=billing idem.outcome="
	if n, shown := s.values()[name+"dead"]; !shown || n != 0 {
		t.Errorf("before there is a dead letter, %v (shown: %t)", n, shown)
	}
	handle("a", nil)
	handle("a", nil)
	handle("b", errors.New("refused"))
	handle("c", errors.New("refused"), inbox.WithMaxAttempts(1))
	values := s.values()
	for outcome, want := range map[string]float64{"done": 1, "duplicate": 2, "retry": 1, "dead": 1} {
		if values[name+outcome] != want {
			t.Errorf("%s: %v, want %v: %v", outcome, values[name+outcome], want, values)
		}
	}
	if n := values["idem.inbox.handle.duration idem.consumer=billing"]; n != 5 {
		t.Errorf("%v calls are measured: %v", n, values)
	}
	if n := values["messaging.process.duration messaging.consumer.group.name=billing messaging.operation.name=process messaging.system=idem"]; n != 5 {
		t.Errorf("%v calls are measured by the semantic conventions: %v", n, values)
	}
}

func TestObserver_CountsHinderedAndPausedMessages(t *testing.T) {
	t.Parallel()
	s, pool := newSeen(t), pgtest.New(t)
	for i, failure := range []error{nil, &pgconn.PgError{Code: "55P03"}, errors.New("the bank is away"), nil} {
		_, err := inbox.Handle(t.Context(), pool, "billing", inbox.Message{Source: "s", ID: fmt.Sprint(i)}, func(pgx.Tx) error { return failure },
			inbox.WithCircuit(2, time.Hour), inbox.WithBackoff(time.Hour, time.Hour), inbox.WithObserver(s.observer()))
		if err != nil {
			t.Fatal(err)
		}
		if n, shown := s.values()["idem.inbox.paused idem.consumer=billing"]; i == 0 && (!shown || n != 0) {
			t.Errorf("before there is a pause, %v (shown: %t)", n, shown)
		}
	}
	for name, want := range map[string]float64{"idem.inbox.hindered": 1, "idem.inbox.paused": 1} {
		if got := s.values()[name+" idem.consumer=billing"]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
