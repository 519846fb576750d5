package ledger

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// Books have a line for each effect of a message, in the order of the effects.
type Books struct {
	T    testing.TB
	Pool *pgxpool.Pool
}

// NewBooks returns books in a database of their own.
func NewBooks(t testing.TB, configure ...func(*pgxpool.Config)) *Books {
	t.Helper()
	b := &Books{t, pgtest.New(t, configure...)}
	b.Exec(`CREATE TABLE ledger (line bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, payload text NOT NULL)`)
	return b
}

// Exec executes a statement.
func (b *Books) Exec(sql string) {
	b.T.Helper()
	if _, err := b.Pool.Exec(Within(b.T), sql); err != nil {
		b.T.Fatal(err)
	}
}

// Enter is what a message does.
func (b *Books) Enter(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(context.Background(), `INSERT INTO ledger (key, payload) VALUES ($1, $2)`, m.Key, string(m.Payload))
	return err
}

// Query returns the rows of a query, each as one text.
func (b *Books) Query(sql string) []string {
	b.T.Helper()
	rows, err := b.Pool.Query(Within(b.T), sql)
	if err != nil {
		b.T.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.T.Fatal(err)
	}
	return all
}

// Lines returns the payloads of the messages that have had their effects.
func (b *Books) Lines() []string {
	b.T.Helper()
	return b.Query(`SELECT payload FROM ledger ORDER BY line`)
}

// Wait returns when a query has that many rows.
func (b *Books) Wait(sql string, rows int) {
	b.T.Helper()
	Eventually(b.T, func() error {
		if n := len(b.Query(sql)); n < rows {
			return fmt.Errorf("%d of %d rows of %s", n, rows, sql)
		}
		return nil
	})
}

// WaitForLines returns when there are that many.
func (b *Books) WaitForLines(n int) {
	b.T.Helper()
	b.Wait(`SELECT payload FROM ledger`, n)
}

// Limit is for whatever has to happen.
const Limit = waiting.Limit

// Within ends with the test, or when its time is over.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Eventually returns when f does without an error.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(Limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// Run runs something until the returned stop is called, at the end of the test at the latest.
func Run(t testing.TB, run func(context.Context) error) (stop func() error) {
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
