package idemamqp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/cutproxy"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// effects has a row for each effect of a message. Only the inbox prevents a second row.
const effects = `CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text, key text, body text)`

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), effects); err != nil {
		t.Fatal(err)
	}
	return pool
}

// effect inserts the effect of a message.
func effect(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (id, key, body) VALUES ($1, $2, $3)`, m.ID, m.Key, string(m.Payload))
	return err
}

func record(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
	return effect(context.Background(), tx, m)
}

// run runs a consumer until stop is called, or until the end of the test.
func run(t testing.TB, c *idemamqp.Consumer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func consumer(t testing.TB, pool *pgxpool.Pool, url, queue string, handle idemamqp.Handler, config idemamqp.ConsumerConfig) *idemamqp.Consumer {
	t.Helper()
	c, err := idemamqp.NewConsumer(pool, "books", url, queue, handle, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// quick returns a config with a short backoff that logs to the test.
func quick(t testing.TB, options ...inbox.Option) idemamqp.ConsumerConfig {
	return idemamqp.ConsumerConfig{Options: append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func publish(t testing.TB, n *node, messages ...outbox.Message) {
	t.Helper()
	if err := ledger.Publish(within(t), publisher(t, n.url(), idemamqp.PublisherConfig{}), messages); err != nil {
		t.Fatal(err)
	}
}

func bodies(t testing.TB, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), `SELECT body FROM effects ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func count(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantEffects(t testing.TB, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d effects", len(want)), func() bool { return len(bodies(t, pool)) >= len(want) })
	if diff := cmp.Diff(want, bodies(t, pool)); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// wantSettled stops a consumer after it has acknowledged all messages, and checks that the queue is
// empty.
func wantSettled(t testing.TB, n *node, pool *pgxpool.Pool, q string, stop func()) {
	t.Helper()
	last := message(q, "", "the end") // the messages before it are acknowledged when it is handled; it may stay unacknowledged
	publish(t, n, last)
	eventually(t, "the end", func() bool { return slices.Contains(bodies(t, pool), "the end") })
	stop()
	ch := channel(t, n)
	for {
		d, ok, err := ch.Get(q, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		if d.MessageId != last.ID {
			t.Errorf("left: %q", d.Body)
		}
	}
}

// The broker redelivers a message if its acknowledgment is lost.
func TestConsumer_HandlesOnceAfterALostAcknowledgment(t *testing.T) {
	t.Parallel()
	n, pool := rabbit(t), newPool(t)
	q := queue(t, n, nil)
	proxy, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	again := make(chan bool, 10)
	handle := func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error {
		proxy.Deafen(true) // until the connection is cut
		again <- d.Redelivered
		return record(tx, m, d)
	}
	stop := run(t, consumer(t, pool, n.at(proxy.Addr()), q, handle, quick(t)))
	publish(t, n, message(q, "", "only"))
	wantEffects(t, pool, "only")
	<-again
	proxy.Deafen(false)
	proxy.Cut()
	publish(t, n, message(q, "", "next"))
	wantEffects(t, pool, "only", "next")
	proxy.Deafen(false)
	proxy.Cut()
	publish(t, n, message(q, "", "last"))
	wantEffects(t, pool, "only", "next", "last")
	stop()
	if len(again) != 2 {
		t.Errorf("the handler was called %d times, want 3", len(again)+1)
	}
}

// A quorum queue may drop a message after a number of deliveries. An attempt is no delivery.
func TestConsumer_KeepsFailedMessagesUnacknowledged(t *testing.T) {
	t.Parallel()
	n, pool := rabbit(t), newPool(t)
	q := queue(t, n, amqp.Table{"x-delivery-limit": 2})
	publish(t, n, message(q, "a", "slow"), message(q, "b", "quick"), message(q, "c", "quick too"))
	attempts := 0
	handle := func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error {
		if string(m.Payload) == "slow" {
			if attempts++; attempts < 6 {
				return errors.New("not yet")
			}
		}
		return record(tx, m, d)
	}
	stop := run(t, consumer(t, pool, n.url(), q, handle, quick(t, inbox.WithMaxAttempts(10))))
	wantEffects(t, pool, "quick", "quick too", "slow")
	wantSettled(t, n, pool, q, stop)
}

func TestConsumer_DeadLettersAMessageWithoutID(t *testing.T) {
	t.Parallel()
	n, pool := rabbit(t), newPool(t)
	q, ch := queue(t, n, nil), channel(t, n)
	say := func(body string) {
		if err := ch.PublishWithContext(t.Context(), "", q, false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	say("nameless")
	stop := run(t, consumer(t, pool, n.url(), q, record, quick(t)))
	eventually(t, "a dead letter", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.dead_letters WHERE payload = 'nameless' AND class = 'invalid'`) == 1
	})
	wantSettled(t, n, pool, q, stop)
	config := quick(t)
	config.ID = func(d amqp.Delivery) string { return strings.ToUpper(string(d.Body)) }
	say("named")
	say("named")
	stop = run(t, consumer(t, pool, n.url(), q, record, config))
	wantEffects(t, pool, "the end", "named")
	stop()
}

func TestConsumer_SurvivesAnUnavailableDatabase(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	dsn := pgtest.DSN(t)
	pool := pgtest.Open(t, dsn)
	if _, err := pool.Exec(t.Context(), effects); err != nil {
		t.Fatal(err)
	}
	proxy := pgtest.Proxy(t, dsn)
	q := queue(t, n, nil)
	through, err := pgxpool.New(t.Context(), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	proxy.Refuse(pgproxy.Reset)
	stop := run(t, consumer(t, through, n.url(), q, record, quick(t, inbox.WithMaxAttempts(1))))
	publish(t, n, message(q, "", "first"), message(q, "", "second"))
	eventually(t, "the consumer to have them", func() bool {
		state, err := channel(t, n).QueueDeclarePassive(q, true, false, false, false, nil)
		return err == nil && state.Messages == 0
	})
	proxy.Admit()
	wantEffects(t, pool, "first", "second")
	wantSettled(t, n, pool, q, stop)
}
