package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

// limit is how long a test waits for a signal that has to come.
const limit = waiting.Limit

// await returns once the channel is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// eventually asks until the answer is yes.
var eventually = waiting.Until

// office is a database with an outbox.
type office struct {
	t    testing.TB
	pool *pgxpool.Pool
	dsn  string
}

func newOffice(t testing.TB, configure ...func(*pgxpool.Config)) *office {
	t.Helper()
	dsn := pgtest.DSN(t)
	return &office{t: t, dsn: dsn, pool: pgtest.Open(t, dsn, configure...)}
}

// through returns the office as a client behind a proxy sees it.
func (o *office) through(proxy *pgproxy.Proxy, configure ...func(*pgxpool.Config)) *office {
	o.t.Helper()
	return &office{t: o.t, dsn: proxy.DSN(), pool: pgtest.Open(o.t, proxy.DSN(), configure...)}
}

// add adds messages in a transaction of their own.
func (o *office) add(messages ...outbox.Message) {
	o.t.Helper()
	err := pgx.BeginFunc(context.Background(), o.pool, func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, messages...) })
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.pool.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) count(sql string, args ...any) int {
	o.t.Helper()
	var n int
	if err := o.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (o *office) text(sql string, args ...any) string {
	o.t.Helper()
	var text string
	if err := o.pool.QueryRow(context.Background(), sql, args...).Scan(&text); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// letters returns dead letters.
func (o *office) letters(only outbox.Ref) (letters []outbox.DeadLetter) {
	o.t.Helper()
	for letter, err := range outbox.List(context.Background(), o.pool, only) {
		if err != nil {
			o.t.Fatal(err)
		}
		letters = append(letters, letter)
	}
	return letters
}

func (o *office) waiting() int { o.t.Helper(); return o.count(`select count(*) from idem.outbox`) }

// empty waits until everything has left.
func (o *office) empty() {
	o.t.Helper()
	eventually(o.t, "the outbox to be empty", func() bool { return o.waiting() == 0 })
}

// swift is a configuration with short pauses.
func swift() outbox.RelayConfig {
	return outbox.RelayConfig{MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond, Poll: 50 * time.Millisecond}
}

// relay runs a relay until the test is over, or stop is called.
func (o *office) relay(publisher outbox.Publisher, config outbox.RelayConfig) (r *outbox.Relay, stop func()) {
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

var errRefused = errors.New("the broker does not want it")

// broker is a Publisher that knows nothing of keys: it publishes all that it does not refuse.
type broker struct {
	mu        sync.Mutex
	published []outbox.Message
	calls     int
	asked     map[string]int // how often it was given an id
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
		return fmt.Errorf("it did not go well: %w", &outbox.PublishError{Failed: failed})
	}
	return nil
}

// types returns what was published, in order: the types, by which the tests number messages.
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

// all returns what was published, in order.
func (b *broker) all() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

// tries returns how often it was given each id.
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

// message is one of a key, with a type by which it is known.
func message(key, what string) outbox.Message {
	return outbox.Message{Topic: "orders", Key: key, Type: what, Payload: []byte("of " + what)}
}

// unless is a broker that does not say that it fails because of messages of a type.
func (b *broker) unless(bad string) outbox.PublisherFunc {
	return func(ctx context.Context, messages []outbox.Message) error {
		for _, m := range messages {
			if strings.HasPrefix(m.Type, bad) {
				return errors.New("no")
			}
		}
		return b.Publish(ctx, messages)
	}
}
