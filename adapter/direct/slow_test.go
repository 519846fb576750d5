package direct_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// What is before it and behind it in its transaction is not to blame.
func TestHandlerThatNeverEndsInTimeHoldsBackItsKeyAloneAndDies(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	for what, wait := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"in a statement": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select pg_sleep(3600)`)
			return err
		},
		"elsewhere": func(ctx context.Context, _ pgx.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tr := newTrade(t)
			tr.add(message("b", "1"), message("a", "slow"), message("c", "1"), message("a", "behind"))
			tr.relay(tr.billing, func(tx pgx.Tx, m inbox.Message) error {
				if m.Type == "slow" {
					return wait(inbox.Context(tx), tx)
				}
				return enter(tx, m)
			}, outbox.RelayConfig{PublishTimeout: timeout, MaxAttempts: 2}, soon, inbox.WithMaxAttempts(2))
			tr.empty()
			for key, want := range map[string]string{"a": "behind", "b": "1", "c": "1"} {
				if diff := cmp.Diff([]string{want}, tr.types(key)); diff != "" {
					t.Errorf("key %s (-want +got):\n%s", key, diff)
				}
			}
			if n := count(t, tr.shop, `select count(*) from idem.dead_letters`) + count(t, tr.billing, `select count(*) from idem.dead_letters`); n != 1 {
				t.Errorf("%d are dead", n)
			}
		})
	}
}

// A process that is stopped blames no message, however long its handler was at it.
func TestHandlerThatIsAtWorkWhenItsProcessStopsIsNotBlamed(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	tr.add(message("a", "slow"))
	var first atomic.Bool
	begun := make(chan struct{})
	handle := func(tx pgx.Tx, m inbox.Message) error {
		if first.CompareAndSwap(false, true) {
			close(begun)
			<-inbox.Context(tx).Done()
			return inbox.Context(tx).Err()
		}
		return enter(tx, m)
	}
	config := outbox.RelayConfig{Drain: time.Millisecond, PublishTimeout: 10 * time.Minute, MaxAttempts: 1}
	stop := tr.relay(tr.billing, handle, config, soon, inbox.WithMaxAttempts(1))
	<-begun
	stop()
	tr.relay(tr.billing, handle, config, soon, inbox.WithMaxAttempts(1))
	tr.empty()
	if n := len(tr.types("a")); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// A handler that heeds no context is done when it says so, and the others have their turn.
func TestHandlerThatHeedsNoContextIsDoneThoughTheTimeOfItsCallIsOver(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	tr.add(message("a", "slow"), message("b", "1"), message("a", "behind"))
	tr.relay(tr.billing, func(tx pgx.Tx, m inbox.Message) error {
		if m.Type == "slow" {
			if _, err := tx.Exec(context.Background(), `select pg_sleep(1.5)`); err != nil {
				return err
			}
			_, err := tx.Exec(context.Background(), `insert into books (id, key, type) values ($1, $2, $3)`, m.ID, m.Key, m.Type)
			return err
		}
		return enter(tx, m)
	}, outbox.RelayConfig{PublishTimeout: time.Second}, soon)
	tr.empty()
	if a, b := tr.types("a"), tr.types("b"); len(a) != 2 || a[0] != "slow" || len(b) != 1 {
		t.Errorf("%q, %q", a, b)
	}
}
