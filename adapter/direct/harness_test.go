package direct_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

// limit is how long a test waits for a signal.
const limit = waiting.Limit

const consumer = "billing"

var errRefused = errors.New("the amount is negative")

// services are a shop and a billing service, each with a database.
type services struct {
	t             testing.TB
	shop, billing *pgxpool.Pool
}

func newServices(t testing.TB) *services {
	t.Helper()
	s := &services{t: t, shop: pgtest.New(t), billing: pgtest.New(t)}
	if _, err := s.billing.Exec(context.Background(), `create table books (n bigint generated always as identity, id text not null, key text not null, type text not null)`); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *services) add(messages ...outbox.Message) {
	s.t.Helper()
	err := pgx.BeginFunc(context.Background(), s.shop, func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, messages...) })
	if err != nil {
		s.t.Fatal(err)
	}
}

// enter is a handler that inserts a message into books.
func enter(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(inbox.Context(tx), `insert into books (id, key, type) values ($1, $2, $3)`, m.ID, m.Key, m.Type)
	return err
}

// entering returns a handler that inserts a message, and fails if refuse says so.
func entering(refuse func(m inbox.Message) bool) direct.Handler {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := enter(tx, m); err != nil || !refuse(m) {
			return err
		}
		return errRefused
	}
}

// relay runs a relay to a consumer until the end of the test, or until stop is called.
func (s *services) relay(pool *pgxpool.Pool, handle direct.Handler, config outbox.RelayConfig, opts ...inbox.Option) (stop func()) {
	s.t.Helper()
	return s.run(s.consumer(pool, consumer, handle, opts...), config)
}

func (s *services) consumer(pool *pgxpool.Pool, name string, handle direct.Handler, opts ...inbox.Option) *direct.Consumer {
	s.t.Helper()
	logger := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	c, err := direct.NewConsumer(pool, name, handle, direct.ConsumerConfig{Options: opts, Logger: logger})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// run runs a relay until the end of the test, or until stop is called.
func (s *services) run(to outbox.Publisher, config outbox.RelayConfig) (stop func()) {
	s.t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	config.MinPause, config.Poll = time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- outbox.NewRelay(s.shop, to, config).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				s.t.Error(err)
			}
		case <-time.After(limit):
			s.t.Fatal("the relay does not end")
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (s *services) eventually(what string, is func() bool) {
	s.t.Helper()
	waiting.Until(s.t, what, is)
}

// empty waits until the outbox is empty.
func (s *services) empty() {
	s.t.Helper()
	s.eventually("the outbox to be empty", func() bool { return count(s.t, s.shop, `select count(*) from idem.outbox`) == 0 })
}

// types returns the types of the handled messages of a key, in order.
func (s *services) types(key string) []string {
	s.t.Helper()
	rows, _ := s.billing.Query(context.Background(), `select type from books where key = $1 order by n`, key)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	return types
}

func message(key, what string) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Type: what, Payload: []byte("of " + what), Headers: map[string]string{"tenant": "t"}}
}
