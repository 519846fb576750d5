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
	"github.com/idem-go/idem/outbox"
)

// Ledger is a database with a row for each effect of a message, in the order of the effects.
type Ledger struct {
	T    testing.TB
	Pool *pgxpool.Pool
}

// New returns a Ledger with a database of its own.
func New(t testing.TB, configure ...func(*pgxpool.Config)) *Ledger {
	t.Helper()
	l := &Ledger{t, pgtest.New(t, configure...)}
	l.Exec(`CREATE TABLE ledger (line bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, payload text NOT NULL)`)
	return l
}

// Exec executes a statement.
func (l *Ledger) Exec(sql string) {
	l.T.Helper()
	if _, err := l.Pool.Exec(Within(l.T), sql); err != nil {
		l.T.Fatal(err)
	}
}

// Record is a handler that inserts a row for the message.
func (l *Ledger) Record(tx pgx.Tx, m inbox.Message) error {
	_, err := tx.Exec(context.Background(), `INSERT INTO ledger (key, payload) VALUES ($1, $2)`, m.Key, string(m.Payload))
	return err
}

// Query returns the rows of a query with one text column.
func (l *Ledger) Query(sql string) []string {
	l.T.Helper()
	rows, err := l.Pool.Query(Within(l.T), sql)
	if err != nil {
		l.T.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.T.Fatal(err)
	}
	return all
}

// Payloads returns the payloads of the recorded messages.
func (l *Ledger) Payloads() []string {
	l.T.Helper()
	return l.Query(`SELECT payload FROM ledger ORDER BY line`)
}

// Wait waits until a query returns at least n rows.
func (l *Ledger) Wait(sql string, n int) {
	l.T.Helper()
	Eventually(l.T, func() error {
		if got := len(l.Query(sql)); got < n {
			return fmt.Errorf("%s returns %d rows, want %d", sql, got, n)
		}
		return nil
	})
}

// WaitForPayloads waits until at least n messages are recorded.
func (l *Ledger) WaitForPayloads(n int) {
	l.T.Helper()
	l.Wait(`SELECT payload FROM ledger`, n)
}

// Limit is how long a test waits for an event.
const Limit = waiting.Limit

// Within returns a context that ends with the test, or after Limit.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Eventually calls f until it returns no error.
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

// Run runs a relay or a consumer until stop is called, or until the end of the test.
func Run(t testing.TB, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil && !t.Failed() {
			t.Logf("Run returned %v", err)
		}
	})
	return stop
}

// Outgoing returns outbox messages that a consumer receives as the given inbox messages.
func Outgoing(topic string, incoming []inbox.Message) []outbox.Message {
	all := make([]outbox.Message, len(incoming))
	for i, m := range incoming {
		all[i] = outbox.Message{ID: m.ID, Topic: topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
	}
	return all
}

// Publish publishes messages as a relay does: each call has at most one message of each key.
func Publish(ctx context.Context, p outbox.Publisher, messages []outbox.Message) error {
	for len(messages) > 0 {
		var batch, rest []outbox.Message
		seen := map[string]bool{}
		for _, m := range messages {
			if m.Key != "" && seen[m.Key] {
				rest = append(rest, m)
				continue
			}
			seen[m.Key] = true
			batch = append(batch, m)
		}
		if err := p.Publish(ctx, batch); err != nil {
			return err
		}
		messages = rest
	}
	return nil
}
