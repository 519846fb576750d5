package pull_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/inbox/pull"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// newConsumer returns an ordered consumer, but for what change changes.
func newConsumer(
	t testing.TB, pool *pgxpool.Pool, handle func(tx pgx.Tx, m inbox.Message, r *raw) error, change func(*pull.Config[*raw]),
) *pull.Consumer[*raw] {
	t.Helper()
	config := pull.Config[*raw]{
		Ordered: true, Batch: 7, Logger: slog.New(slog.DiscardHandler),
		ID: func(r *raw) string { return r.id }, Key: func(r *raw) string { return r.key },
		Redriven: func(inbox.Message) *raw { return &raw{redriven: true} },
	}
	if change != nil {
		change(&config)
	}
	c, err := pull.New(pool, "billing", handle, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a consumer until the end of the test.
func run(t testing.TB, c *pull.Consumer[*raw], open func(context.Context) (pull.Session[*raw], error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, open) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func messages(n int) (all []inbox.Message) {
	for i := range n {
		all = append(all, inbox.Message{ID: fmt.Sprint(i), Key: fmt.Sprint(i % 3)})
	}
	return all
}

// journal notes the messages that a handler was given.
type journal struct {
	mu  sync.Mutex
	ids []string
}

func (j *journal) handled() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ids)
}

func (j *journal) note(_ pgx.Tx, m inbox.Message, _ *raw) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids = append(j.ids, m.ID)
	return nil
}

func awaitLeft(t testing.TB, b *broker, n int) {
	t.Helper()
	waiting.Until(t, fmt.Sprintf("%d messages to be left in the broker", n), func() bool {
		left, _ := b.left(t.Context())
		return left == n
	})
}

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, ordered := range map[string]bool{"ordered": true, "requeue": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPool := func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }
			inboxtest.Run(t, inboxtest.Suite{Pool: newPool, New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
				b := &broker{}
				return inboxtest.Source{
					Name: "billing", Ordered: ordered, Deliver: b.send, Left: b.left,
					Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
						c := newConsumer(t, pool, func(tx pgx.Tx, m inbox.Message, r *raw) error {
							if !r.redriven && r.id != m.ID {
								t.Errorf("message %s comes with the delivery of %s", m.ID, r.id)
							}
							return handle(tx, m)
						}, func(config *pull.Config[*raw]) {
							config.Ordered, config.Requeue, config.Options = ordered, !ordered, options
						})
						return c.Run(ctx, b.open)
					},
				}
			}})
		})
	}
}

func TestConsumer_OpensAnotherSessionAfterAnError(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"open", "Receive", "Settle"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			failures := 2
			b := &broker{fail: func(called string) error {
				if called != method || failures == 0 {
					return nil
				}
				failures--
				return errSession
			}}
			var j journal
			run(t, newConsumer(t, pgtest.New(t), j.note, nil), b.open)
			_ = b.send(t.Context(), messages(5)...)
			awaitLeft(t, b, 0)
			if diff := cmp.Diff([]string{"0", "1", "2", "3", "4"}, j.handled()); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
			if b.opened != 3 {
				t.Errorf("%d sessions were opened, want 3", b.opened)
			}
		})
	}
}

func TestConsumer_ReturnsAPermanentError(t *testing.T) {
	t.Parallel()
	pool, permanent := pgtest.New(t), fmt.Errorf("%w: %w", pull.ErrPermanent, errSession)
	b := &broker{fail: func(string) error { return permanent }}
	if err := newConsumer(t, pool, new(journal).note, nil).Run(t.Context(), b.open); !errors.Is(err, errSession) {
		t.Errorf("%v, want %v", err, errSession)
	}
	b = &broker{queue: []*raw{{id: "1", message: inbox.Message{Source: "a\nb"}}}}
	if err := newConsumer(t, pool, new(journal).note, nil).Run(t.Context(), b.open); !errors.Is(err, inbox.ErrInvalidName) {
		t.Errorf("a source with a line break: %v, want %v", err, inbox.ErrInvalidName)
	}
}

// An unavailable database counts no attempt. A message whose ID panics is a dead letter.
func TestConsumer_SurvivesAnUnavailableDatabaseAndABadID(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool, proxy, b := pgtest.Open(t, dsn), pgtest.Proxy(t, dsn), &broker{}
	through := pgtest.Open(t, proxy.DSN())
	var j journal
	tried := make(chan struct{})
	c := newConsumer(t, through, j.note, func(config *pull.Config[*raw]) {
		tell := sync.OnceFunc(func() { close(tried) })
		config.Options = []inbox.Option{inbox.WithMaxAttempts(1)}
		config.ID = func(r *raw) string {
			tell()
			if r.id == "bad" {
				panic("a bug")
			}
			return r.id
		}
	})
	proxy.Refuse(pgproxy.Reset)
	_ = b.send(t.Context(), append(messages(2), inbox.Message{ID: "bad"})...)
	run(t, c, b.open)
	<-tried
	proxy.Admit()
	awaitLeft(t, b, 0)
	if diff := cmp.Diff([]string{"0", "1"}, j.handled()); diff != "" {
		t.Errorf("handled (-want +got):\n%s", diff)
	}
	var dead int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM idem.dead_letters WHERE class = 'invalid'`).Scan(&dead); err != nil || dead != 1 {
		t.Errorf("%d dead letters, %v", dead, err)
	}
}

// revoking revokes what it has delivered in its first Receive when the second one begins.
type revoking struct {
	*session
	calls int
}

func (r *revoking) Receive(ctx context.Context, limit int, wait time.Duration) ([]*pull.Delivery[*raw], error) {
	if r.calls++; r.calls == 2 {
		r.revoke()
		return nil, nil
	}
	return r.session.Receive(ctx, limit, wait)
}

func TestConsumer_DoesNotHandleRevokedDeliveries(t *testing.T) {
	t.Parallel()
	b := &broker{}
	_ = b.send(t.Context(), messages(6)...)
	var j journal
	c := newConsumer(t, pgtest.New(t), func(tx pgx.Tx, m inbox.Message, r *raw) error {
		if err := j.note(tx, m, r); err != nil || m.ID != "0" {
			return err
		}
		return errSession // and so 0 waits, and 3 waits behind it
	}, func(config *pull.Config[*raw]) {
		config.Options = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond)}
	})
	run(t, c, func(ctx context.Context) (pull.Session[*raw], error) {
		s, err := b.open(ctx)
		return &revoking{session: s.(*session)}, err
	})
	awaitLeft(t, b, 2)
	_ = b.send(t.Context(), inbox.Message{ID: "last"})
	waiting.Until(t, "the last message to be handled", func() bool { return slices.Contains(j.handled(), "last") })
	if again := j.handled()[1:]; slices.Contains(again, "0") || slices.Contains(again, "3") {
		t.Errorf("revoked messages are handled: %q", again)
	}
}

func TestConsumer_RequeuesNothingWhilePaused(t *testing.T) {
	t.Parallel()
	b := &broker{}
	_ = b.send(t.Context(), messages(6)...)
	run(t, newConsumer(t, pgtest.New(t), func(pgx.Tx, inbox.Message, *raw) error { return errSession }, func(config *pull.Config[*raw]) {
		config.Ordered, config.Requeue = false, true
		config.Options = []inbox.Option{inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(2, time.Hour)}
	}), b.open)
	var held []bool
	waiting.Until(t, "two messages to be requeued", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		held = held[:0]
		for _, r := range b.queue {
			held = append(held, r.delivered && r.at.IsZero())
		}
		return !b.queue[0].at.IsZero() && !b.queue[1].at.IsZero()
	})
	if diff := cmp.Diff([]bool{false, false, true, true, true, true}, held); diff != "" {
		t.Errorf("held messages (-want +got):\n%s", diff)
	}
}
