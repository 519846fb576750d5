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

// The other messages of its transaction count no attempt.
func TestConsumer_DeadLettersAHungHandler(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
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
			s := newServices(t)
			s.add(message("b", "1"), message("a", "slow"), message("c", "1"), message("a", "behind"))
			s.relay(s.billing, func(tx pgx.Tx, m inbox.Message) error {
				if m.Type == "slow" {
					return wait(inbox.Context(tx), tx)
				}
				return enter(tx, m)
			}, outbox.RelayConfig{PublishTimeout: timeout, MaxAttempts: 2}, soon, inbox.WithMaxAttempts(2))
			s.empty()
			for key, want := range map[string]string{"a": "behind", "b": "1", "c": "1"} {
				if diff := cmp.Diff([]string{want}, s.types(key)); diff != "" {
					t.Errorf("key %s (-want +got):\n%s", key, diff)
				}
			}
			if n := count(t, s.shop, `select count(*) from idem.dead_letters`) + count(t, s.billing, `select count(*) from idem.dead_letters`); n != 1 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

// The running handler has not failed, however long it has taken.
func TestConsumer_StopCountsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.add(message("a", "slow"))
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
	stop := s.relay(s.billing, handle, config, soon, inbox.WithMaxAttempts(1))
	<-begun
	stop()
	s.relay(s.billing, handle, config, soon, inbox.WithMaxAttempts(1))
	s.empty()
	if n := len(s.types("a")); n != 1 {
		t.Errorf("%d effects", n)
	}
}
