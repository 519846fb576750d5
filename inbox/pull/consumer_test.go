package pull_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/inbox/pull"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

type handler = func(tx pgx.Tx, m inbox.Message, r *raw) error

// newConsumer returns an ordered consumer, but for what change changes.
func newConsumer(
	t testing.TB, pool *pgxpool.Pool, handle handler, change func(*pull.Config[*raw]),
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

// run runs a consumer until the test is over or stop is called.
func run(t testing.TB, c *pull.Consumer[*raw], b *broker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, b.open) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
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

func (j *journal) add(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids = append(j.ids, id)
}

func (j *journal) handled() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.ids...)
}

func (j *journal) note(_ pgx.Tx, m inbox.Message, _ *raw) error {
	j.add(m.ID)
	return nil
}

func empty(t testing.TB, b *broker) {
	t.Helper()
	waiting.Until(t, "the broker to have no message", func() bool {
		left, _ := b.left(t.Context())
		return left == 0
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
			run(t, newConsumer(t, pgtest.New(t), j.note, nil), b)
			_ = b.send(t.Context(), messages(5)...)
			empty(t, b)
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
	for _, method := range []string{"open", "Receive", "Settle"} {
		b := &broker{fail: func(called string) error {
			if called == method {
				return permanent
			}
			return nil
		}}
		if err := newConsumer(t, pool, new(journal).note, nil).Run(t.Context(), b.open); !errors.Is(err, errSession) {
			t.Errorf("%s: %v, want %v", method, err, errSession)
		}
	}
	b := &broker{queue: []*raw{{id: "1", message: inbox.Message{Source: "a\nb"}}}}
	if err := newConsumer(t, pool, new(journal).note, nil).Run(t.Context(), b.open); !errors.Is(err, inbox.ErrInvalidName) {
		t.Errorf("a source with a line break: %v, want %v", err, inbox.ErrInvalidName)
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
		if j.add(m.ID); m.ID == "0" && len(j.handled()) == 1 {
			return errSession // and so 0 waits, and 3 waits behind it
		}
		return nil
	}, func(config *pull.Config[*raw]) {
		config.Options = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond)}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, func(ctx context.Context) (pull.Session[*raw], error) {
			s, err := b.open(ctx)
			return &revoking{session: s.(*session)}, err
		})
	}()
	waiting.Until(t, "two messages to be left", func() bool {
		left, _ := b.left(ctx)
		return left == 2
	})
	_ = b.send(ctx, inbox.Message{ID: "last"})
	waiting.Until(t, "the last message to be handled", func() bool { return j.handled()[len(j.handled())-1] == "last" })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for i, id := range j.handled()[1:] {
		if id == "0" || id == "3" {
			t.Errorf("message %s is handled, as number %d, by a consumer that does not have it any more", id, i+1)
		}
	}
}

func TestConsumer_RequeuesNothingWhilePaused(t *testing.T) {
	t.Parallel()
	b := &broker{}
	_ = b.send(t.Context(), messages(6)...)
	var j journal
	pool := pgtest.New(t)
	run(t, newConsumer(t, pool, func(_ pgx.Tx, m inbox.Message, _ *raw) error {
		j.add(m.ID)
		return errSession
	}, func(config *pull.Config[*raw]) {
		config.Ordered, config.Requeue = false, true
		config.Options = []inbox.Option{inbox.WithBackoff(time.Hour, time.Hour), inbox.WithCircuit(2, time.Hour)}
	}), b)
	waiting.Until(t, "two messages to be requeued", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		requeued := 0
		for _, r := range b.queue {
			if !r.at.IsZero() {
				requeued++
			}
		}
		return requeued == 2
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.queue {
		if held := r.at.IsZero(); held != (i >= 2) || held != r.delivered {
			t.Errorf("message %d: held is %v, and delivered is %v", i, held, r.delivered)
		}
	}
}
