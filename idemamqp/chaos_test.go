package idemamqp_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/cutproxy"
	"github.com/idem-go/idem/internal/ledger"
	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 2000, "how many the chaos has")

// The processes that are killed find their way by these.
const (
	databaseOf = "IDEM_TEST_AMQP_DATABASE"
	brokerOf   = "IDEM_TEST_AMQP_BROKER"
	queueOf    = "IDEM_TEST_AMQP_QUEUE"
)

// work is what a process does that is there to be killed.
func work(ctx context.Context, role string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err != nil {
		return err
	}
	broker, queue := os.Getenv(brokerOf), os.Getenv(queueOf)
	handle := func(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
		switch {
		case role == "victim" && string(m.Payload) == "deadly":
			os.Exit(3)
		case role == "victim":
			return effect(ctx, tx, m)
		}
		return ledger.Take(ctx, tx, m.ID, m.Key, m.Payload, 50)
	}
	c, err := idemamqp.NewConsumer(pool, "books", broker, queue, handle, idemamqp.ConsumerConfig{
		Ordered: true, Logger: logger, Options: []inbox.Option{inbox.WithPause(10*time.Millisecond, 50*time.Millisecond), inbox.WithMaxAttempts(10)},
	})
	if err != nil {
		return err
	}
	ledger.Ready()
	if role != "relay" {
		return c.Run(ctx)
	}
	publisher := idemamqp.NewPublisher(broker, idemamqp.PublisherConfig{})
	return outbox.NewRelay(pool, publisher, outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
}

// Not parallel: it restarts the broker that all tests share.
func TestChaosLosesDoublesAndReordersNothing(t *testing.T) {
	n := rabbit(t)
	q := queue(t, n, amqp.Table{"x-single-active-consumer": true})
	dsn := pgtest.DSN(t)
	pool := pgtest.Open(t, dsn)
	if err := ledger.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	database, address := proxied(t, dsn)
	broker, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	env := []string{databaseOf + "=" + address, brokerOf + "=" + n.at(broker.Addr()), queueOf + "=" + q}
	relays, consumers := newTeam(t, "relay", env), newTeam(t, "consumer", env)

	began := time.Now()
	var seen atomic.Int64
	ctx, calm := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writer := &ledger.Writer{Pool: pool, Topic: q, Messages: *messages, Keys: 50, Poison: 200, Pause: 20 * time.Millisecond}
	writing.Go(func() {
		if err := writer.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	restarts := 0
	writing.Go(func() { // at even distances, so that there is one in the shortest run
		for of := 1 + *messages/20_000; restarts < of; restarts++ {
			eventually(t, "messages", func() bool { return writer.Said() > (2*restarts+1)**messages/(2*of) })
			n.kill()
			if err := n.start(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	told := make(chan string)
	go func() {
		effects := func() int { return int(seen.Load()) }
		times, err := ledger.Storm(ctx, effects,
			ledger.Fault{Name: "a relay killed", Every: often(7), Do: relays.KillOne},
			ledger.Fault{Name: "a consumer killed", Every: often(9), Do: consumers.KillOne},
			ledger.Fault{Name: "the broker cut off", Every: often(12), Do: func() error { broker.Cut(); return nil }},
			ledger.Fault{Name: "acknowledgements lost", Every: often(10), Do: func() error {
				broker.Deafen(true)
				time.Sleep(50 * time.Millisecond)
				broker.Deafen(false)
				return nil
			}},
			ledger.Fault{Name: "the database cut off", Every: often(12), Do: func() error { database.Cut(); return nil }},
		)
		if err != nil {
			t.Error(err)
		}
		told <- times
	}()
	patience(t, "most messages to have their effect", func() bool {
		seen.Store(int64(count(t, pool, `SELECT count(*) FROM effects`)))
		return int(seen.Load()) > *messages*9/10
	})
	writing.Wait()
	calm()
	times := <-told
	var report ledger.Report
	patience(t, "all messages to have their effect", func() bool {
		if report, err = ledger.Read(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		return report.Settled()
	})
	ch := channel(t, n)
	patience(t, "the queue to be empty", func() bool {
		state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
		return err == nil && state.Messages == 0
	})
	if report, err = ledger.Read(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v in %v, with %d × the broker killed, %s", report, time.Since(began).Round(time.Second), restarts, times)
	if err := report.Broken(); err != nil {
		t.Error(err)
	}
}

// newTeam is two processes that do the same.
func newTeam(t *testing.T, role string, env []string) *ledger.Team {
	t.Helper()
	team, err := ledger.NewTeam(2, role, t.Output(), env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	return team
}

// often is how much progress there is between two faults that a short run has so many of. A long one has more, further apart.
func often(times int) int { return *messages / (times * (1 + *messages/20_000)) }

// proxied returns the address of a database behind a proxy.
func proxied(t *testing.T, dsn string) (*cutproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := cutproxy.New(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	u.Host = proxy.Addr()
	return proxy, u.String()
}

// patience is eventually for what takes as long as there are messages.
func patience(t *testing.T, what string, is func() bool) {
	t.Helper()
	last := time.Now().Add(3*time.Minute + time.Duration(*messages)*10*time.Millisecond)
	for !is() {
		if time.Now().After(last) {
			t.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
