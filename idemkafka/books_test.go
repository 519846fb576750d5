package idemkafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/pgtest"
)

var errPoison = errors.New("the amount is negative")

// books have a line for each effect of a message, in the order of the effects.
type books struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func newBooks(t testing.TB, configure ...func(*pgxpool.Config)) *books {
	t.Helper()
	l := &books{t: t, pool: pgtest.New(t, configure...)}
	l.exec(`CREATE TABLE ledger (line bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, payload text NOT NULL)`)
	return l
}

func (l *books) exec(sql string) {
	l.t.Helper()
	if _, err := l.pool.Exec(within(l.t), sql); err != nil {
		l.t.Fatal(err)
	}
}

// enter is a Handler.
func (l *books) enter(tx pgx.Tx, m inbox.Message, _ *kgo.Record) error {
	_, err := tx.Exec(context.Background(), `INSERT INTO ledger (key, payload) VALUES ($1, $2)`, m.Key, string(m.Payload))
	return err
}

// query returns the rows of a query, each as one text.
func (l *books) query(sql string) []string {
	l.t.Helper()
	rows, err := l.pool.Query(within(l.t), sql)
	if err != nil {
		l.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

func (l *books) lines() []string { return l.query(`SELECT payload FROM ledger ORDER BY line`) }

// wait returns when a query has that many rows.
func (l *books) wait(sql string, rows int) {
	l.t.Helper()
	eventually(l.t, func() error {
		if n := len(l.query(sql)); n < rows {
			return fmt.Errorf("%d of %d rows of %s", n, rows, sql)
		}
		return nil
	})
}

func (l *books) waitForLines(n int) { l.t.Helper(); l.wait(`SELECT payload FROM ledger`, n) }

const limit = time.Minute // for whatever has to happen

// within ends with the test, or when its time is over.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// eventually returns when f does without an error.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// start runs something until the returned stop is called, at the end of the test at the latest.
func start(t testing.TB, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil && !t.Failed() {
			t.Logf("it ended with: %v", err)
		}
	})
	return stop
}
