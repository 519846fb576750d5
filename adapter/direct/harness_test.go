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

// limit is how long a test waits for a signal that has to come.
const limit = waiting.Limit

const consumer = "billing"

var errRefused = errors.New("the amount is negative")

// trade is a shop and a billing service, with a database each.
type trade struct {
	t             testing.TB
	shop, billing *pgxpool.Pool
}

func newTrade(t testing.TB) *trade {
	t.Helper()
	tr := &trade{t: t, shop: pgtest.New(t), billing: pgtest.New(t)}
	if _, err := tr.billing.Exec(context.Background(), `create table books (n bigint generated always as identity, id text not null, key text not null, type text not null)`); err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr *trade) add(messages ...outbox.Message) {
	tr.t.Helper()
	err := pgx.BeginFunc(context.Background(), tr.shop, func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, messages...) })
	if err != nil {
		tr.t.Fatal(err)
	}
}

// enter is the effect of a message.
func enter(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(inbox.Context(tx), `insert into books (id, key, type) values ($1, $2, $3)`, m.ID, m.Key, m.Type)
	return err
}

// entering enters what refuse lets pass.
func entering(refuse func(m inbox.Message) bool) direct.Handler {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := enter(tx, m); err != nil || !refuse(m) {
			return err
		}
		return errRefused
	}
}

// relay runs a relay to a consumer until the test is over, or stop is called.
func (tr *trade) relay(pool *pgxpool.Pool, handle direct.Handler, config outbox.RelayConfig, opts ...inbox.Option) (stop func()) {
	tr.t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(tr.t.Output(), nil))
	to, err := direct.NewConsumer(pool, consumer, handle, direct.ConsumerConfig{Options: opts, Logger: config.Logger})
	if err != nil {
		tr.t.Fatal(err)
	}
	config.MinPause, config.Poll = time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- outbox.NewRelay(tr.shop, to, config).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				tr.t.Error(err)
			}
		case <-time.After(limit):
			tr.t.Fatal("the relay does not end")
		}
	})
	tr.t.Cleanup(stop)
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

func (tr *trade) eventually(what string, is func() bool) {
	tr.t.Helper()
	waiting.Until(tr.t, what, is)
}

// empty waits until everything has left the outbox.
func (tr *trade) empty() {
	tr.t.Helper()
	tr.eventually("the outbox to be empty", func() bool { return count(tr.t, tr.shop, `select count(*) from idem.outbox`) == 0 })
}

// drains waits for the outbox to be empty, for as long as messages leave it.
func (tr *trade) drains() {
	tr.t.Helper()
	for left := count(tr.t, tr.shop, `select count(*) from idem.outbox`); left > 0; {
		tr.eventually("a message to leave", func() bool { return count(tr.t, tr.shop, `select count(*) from idem.outbox`) < left })
		left = count(tr.t, tr.shop, `select count(*) from idem.outbox`)
	}
}

// types returns the types of what was handled of a key, in order.
func (tr *trade) types(key string) []string {
	tr.t.Helper()
	rows, _ := tr.billing.Query(context.Background(), `select type from books where key = $1 order by n`, key)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tr.t.Fatal(err)
	}
	return types
}

func message(key, what string) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Type: what, Payload: []byte("of " + what), Headers: map[string]string{"tenant": "t"}}
}
