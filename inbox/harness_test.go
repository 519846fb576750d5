package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// limit is how long a test waits for an expected event.
const limit = waiting.Limit

const consumer = "billing"

var errPoison = errors.New("the amount is negative")

// fixture has a table of effects, with one row for each handled message, and counts the runs of
// handlers.
type fixture struct {
	t    testing.TB
	pool *pgxpool.Pool
	runs atomic.Int64
}

func newFixture(t testing.TB, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	return newFixtureOn(t, pgtest.New(t, configure...))
}

func newFixtureOn(t testing.TB, pool *pgxpool.Pool) *fixture {
	t.Helper()
	if _, err := pool.Exec(context.Background(), `create table books (n bigint generated always as identity, id text not null)`); err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, pool: pool}
}

// message returns a message of the source that all tests use.
func message(id string) inbox.Message {
	return inbox.Message{Source: "orders", ID: id, Type: "OrderPlaced", Headers: map[string]string{"trace": "trace of " + id}, Payload: []byte("payload of " + id)}
}

func messages(prefix string, n int) []inbox.Message {
	ms := make([]inbox.Message, n)
	for i := range ms {
		ms[i] = message(fmt.Sprintf("%s-%04d", prefix, i))
	}
	return ms
}

// record is a handler that inserts the effect of a message.
func (b *fixture) record(tx pgx.Tx, m inbox.Message) error {
	b.runs.Add(1)
	_, err := tx.Exec(context.Background(), `insert into books (id) values ($1)`, m.ID)
	return err
}

// recordID is record for Handle.
func (b *fixture) recordID(id string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error { return b.record(tx, message(id)) }
}

// failing returns a handler that records each message, and then fails for these IDs.
func (b *fixture) failing(ids ...string) func(pgx.Tx, inbox.Message) error {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil {
			return err
		}
		for _, id := range ids {
			if m.ID == id {
				return errPoison
			}
		}
		return nil
	}
}

func (b *fixture) handle(id string, opts ...inbox.Option) inbox.Outcome {
	b.t.Helper()
	o, err := inbox.Handle(context.Background(), b.pool, consumer, message(id), b.recordID(id), opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

func (b *fixture) batch(ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome {
	b.t.Helper()
	outcomes, err := inbox.Batch(context.Background(), b.pool, consumer, ms, fn, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(outcomes) != len(ms) {
		b.t.Fatalf("%d outcomes for %d messages", len(outcomes), len(ms))
	}
	return outcomes
}

// each calls inbox.Handle for each message.
func (b *fixture) each(ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) (outcomes []inbox.Outcome) {
	b.t.Helper()
	for _, m := range ms {
		o, err := inbox.Handle(context.Background(), b.pool, consumer, m, func(tx pgx.Tx) error { return fn(tx, m) }, opts...)
		if err != nil {
			b.t.Error(err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// bulk calls inbox.Bulk with a handler that calls fn for each message.
func (b *fixture) bulk(ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome {
	b.t.Helper()
	outcomes, err := inbox.Bulk(context.Background(), b.pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
		for _, m := range ms {
			if err := fn(tx, m); err != nil {
				return err
			}
		}
		return nil
	}, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return outcomes
}

// handling is one of the ways to handle messages: each, batch or bulk.
type handling func(b *fixture, ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome

var handlings = map[string]handling{"Handle": (*fixture).each, "Batch": (*fixture).batch, "Bulk": (*fixture).bulk}

func (b *fixture) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *fixture) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// wantEffects fails the test unless exactly these messages have one effect each, in this order.
func (b *fixture) wantEffects(want ...string) {
	b.t.Helper()
	rows, _ := b.pool.Query(context.Background(), `select id from books order by n`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	if len(want) == 0 && len(got) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("the effects (-want +got):\n%s", diff)
	}
}

// wantOnce fails the test unless n messages have one effect each and are stored as handled.
func (b *fixture) wantOnce(n int) {
	b.t.Helper()
	if got := b.count(`select count(*) from books`); got != n {
		b.t.Errorf("%d effects of %d messages", got, n)
	}
	if got := b.count(`select count(*) from books join idem.inbox i using (id) where i.state = 'handled'`); got != n {
		b.t.Errorf("%d effects are remembered, want %d", got, n)
	}
	if got := b.count(`select count(distinct id) from books`); got != n {
		b.t.Errorf("%d messages have an effect, want %d", got, n)
	}
}

// due makes the next attempt of every failing message due.
func (b *fixture) due() {
	b.exec(`update idem.inbox set retry_at = clock_timestamp() where state = 'failing'`)
}

// attempts returns how many failed attempts at a message are stored.
func (b *fixture) attempts(id string) int {
	b.t.Helper()
	return b.count(`select coalesce(max(attempts), 0) from idem.inbox where id = $1 and state = 'failing'`, id)
}

// states abbreviates outcomes: D (done), d (duplicate), R (retry), X (dead).
func states(outcomes []inbox.Outcome) string {
	short := map[inbox.State]byte{inbox.Done: 'D', inbox.Duplicate: 'd', inbox.Retry: 'R', inbox.Dead: 'X'}
	var b []byte
	for _, o := range outcomes {
		c, ok := short[o.State]
		if !ok {
			c = '?'
		}
		b = append(b, c)
	}
	return string(b)
}

func (b *fixture) wantStates(want string, outcomes []inbox.Outcome) {
	b.t.Helper()
	if got := states(outcomes); got != want {
		b.t.Errorf("the outcomes are %s, want %s: %+v", got, want, outcomes)
	}
}

// await waits until the channel is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// awaitBlocked waits until n sessions wait for a lock.
func (b *fixture) awaitBlocked(n int) {
	b.t.Helper()
	b.until(func() bool {
		return b.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) >= n
	})
}

// until calls over until it returns true.
func (b *fixture) until(over func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); !over(); {
		if time.Now().After(deadline) {
			b.t.Error("timed out")
			return
		}
	}
}

// hold starts a call of Handle whose handler has recorded its message and blocks until release is
// called. release waits for the end of the call.
func (b *fixture) hold(id string) (release func()) {
	b.t.Helper()
	gate, begun, done := make(chan struct{}), make(chan struct{}), make(chan inbox.Outcome, 1)
	go func() {
		o, _ := inbox.Handle(context.Background(), b.pool, consumer, message(id), func(tx pgx.Tx) error {
			err := b.recordID(id)(tx)
			close(begun)
			<-gate
			return err
		})
		done <- o
	}()
	release = sync.OnceFunc(func() {
		close(gate)
		if o := await(b.t, "the call that was held", done); o.State != inbox.Done {
			b.t.Errorf("%+v", o)
		}
	})
	b.t.Cleanup(release)
	await(b.t, "the handler to begin", begun)
	return release
}
