package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

// limit is how long a test waits for a signal.
const limit = waiting.Limit

// await waits until c is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// eventually waits until a condition is true.
var eventually = waiting.Until

// database is a database with an outbox.
type database struct {
	t    testing.TB
	pool *pgxpool.Pool
	dsn  string
}

func newDatabase(t testing.TB, configure ...func(*pgxpool.Config)) *database {
	t.Helper()
	dsn := pgtest.DSN(t)
	return &database{t: t, dsn: dsn, pool: pgtest.Open(t, dsn, configure...)}
}

// through returns the same database with a pool that connects through a proxy.
func (o *database) through(proxy *pgproxy.Proxy, configure ...func(*pgxpool.Config)) *database {
	o.t.Helper()
	return &database{t: o.t, dsn: proxy.DSN(), pool: pgtest.Open(o.t, proxy.DSN(), configure...)}
}

// add adds messages in one transaction.
func (o *database) add(messages ...outbox.Message) {
	o.t.Helper()
	err := pgx.BeginFunc(context.Background(), o.pool, func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, messages...) })
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *database) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.pool.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *database) count(sql string, args ...any) int {
	o.t.Helper()
	var n int
	if err := o.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (o *database) text(sql string, args ...any) string {
	o.t.Helper()
	var text string
	if err := o.pool.QueryRow(context.Background(), sql, args...).Scan(&text); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// letters returns the dead letters that match only.
func (o *database) letters(only outbox.Ref) (letters []outbox.DeadLetter) {
	o.t.Helper()
	for letter, err := range outbox.List(context.Background(), o.pool, only) {
		if err != nil {
			o.t.Fatal(err)
		}
		letters = append(letters, letter)
	}
	return letters
}

func (o *database) waiting() int { o.t.Helper(); return o.count(`select count(*) from idem.outbox`) }

// empty waits until the outbox is empty.
func (o *database) empty() {
	o.t.Helper()
	eventually(o.t, "the outbox to be empty", func() bool { return o.waiting() == 0 })
}

// wantDead checks the number of dead letters.
func (o *database) wantDead(want int) {
	o.t.Helper()
	if n := o.count(`select count(*) from idem.dead_letters`); n != want {
		o.t.Errorf("%d dead letters, want %d", n, want)
	}
}

// endSessions ends the sessions of all relays.
func (o *database) endSessions() {
	o.t.Helper()
	o.exec(`select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = 'idem relay' and datname = current_database()`)
}

// swift returns a configuration with short pauses.
func swift() outbox.RelayConfig {
	return outbox.RelayConfig{MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond, Poll: 50 * time.Millisecond}
}

// relay runs a relay until the end of the test, or until stop is called.
func (o *database) relay(publisher outbox.Publisher, config outbox.RelayConfig) (r *outbox.Relay, stop func()) {
	o.t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(o.t.Output(), nil))
	}
	r = outbox.NewRelay(o.pool, publisher, config)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := await(o.t, "the relay to end", ended); err != nil {
			o.t.Error(err)
		}
	})
	o.t.Cleanup(stop)
	return r, stop
}

var errRefused = errors.New("the broker refuses the message")

// broker is a Publisher without regard to keys: it publishes every message that it does not refuse.
type broker struct {
	mu        sync.Mutex
	published []outbox.Message
	calls     int
	asked     map[string]int // calls per ID
	refuse    func(m *outbox.Message) error
	before    func(messages []outbox.Message) error
}

func (b *broker) Publish(_ context.Context, messages []outbox.Message) error {
	if b.before != nil {
		if err := b.before(messages); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	failed := map[string]error{}
	for i := range messages {
		m := &messages[i]
		if b.asked == nil {
			b.asked = map[string]int{}
		}
		b.asked[m.ID]++
		if b.refuse != nil {
			if err := b.refuse(m); err != nil {
				failed[m.ID] = err
				continue
			}
		}
		b.published = append(b.published, *m)
	}
	if len(failed) > 0 {
		return fmt.Errorf("publish: %w", &outbox.PublishError{Failed: failed})
	}
	return nil
}

// types returns the types of the published messages, in order. Tests number messages by their
// types.
func (b *broker) types(of ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var types []string
	for _, m := range b.published {
		if len(of) == 0 || slices.Contains(of, m.Key) {
			types = append(types, m.Type)
		}
	}
	return types
}

// wantTypes checks the types of the published messages, in order.
func (b *broker) wantTypes(t testing.TB, want []string, keys ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.types(keys...)); diff != "" {
		t.Errorf("messages of the keys %q (-want +published):\n%s", keys, diff)
	}
}

// gate is a broker whose calls block until open is closed.
type gate struct {
	broker
	entered, open chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) Publish(ctx context.Context, messages []outbox.Message) error {
	g.entered <- struct{}{}
	<-g.open
	return g.broker.Publish(ctx, messages)
}

// refusing returns a function that refuses the messages of a type.
func refusing(what string) func(*outbox.Message) error {
	return func(m *outbox.Message) error {
		if m.Type == what {
			return errRefused
		}
		return nil
	}
}

// all returns the published messages, in order.
func (b *broker) all() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

// tries returns how many calls have had each ID.
func (b *broker) tries() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.asked)
}

func (b *broker) number() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.published)
}

// message returns a message of a key. what is its type and is in its payload.
func message(key, what string) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Type: what, Payload: []byte("of " + what)}
}
