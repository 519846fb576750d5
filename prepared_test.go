package idem_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

// A pool may discard what its users have prepared whenever a connection comes back.
func TestPoolThatDiscardsStatementsOnReleaseServesEveryCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1), func(config *pgxpool.Config) {
		config.AfterRelease = func(conn *pgx.Conn) bool { return conn.DeallocateAll(ctx) == nil }
	})
	for i := range 3 {
		key := fmt.Sprint("k", i)
		l.charged(ctx, key)
		l.wantOnce(key)
	}
}

// The statements that travel with COMMIT are found to be lost when fn has run already. That must not happen again and again
// on the same connection.
func TestLostStatementOfTheCompletionCostsOneRunMore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	l.charged(ctx, "warm")
	if _, err := l.pool.Exec(ctx, "deallocate idem_complete"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{2, 1} {
		key := fmt.Sprint("k", i)
		before := l.runs.Load()
		l.charged(ctx, key)
		if runs := l.runs.Load() - before; runs != want {
			t.Errorf("%s: %d runs, want %d", key, runs, want)
		}
		l.wantOnce(key)
	}
}

// endsAtLook is a context that ends when it is looked at for the n-th time.
type endsAtLook struct {
	context.Context
	left atomic.Int64
	done chan struct{}
}

func newEndsAtLook(n int) *endsAtLook {
	c := &endsAtLook{Context: context.Background(), done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *endsAtLook) Done() <-chan struct{} {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
	return c.done
}

func (c *endsAtLook) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// The connection must not be left in the belief that it knows statements which are gone. Wherever the context ends, the
// calls after it go well; one failure is allowed, by which the loss is found out.
func TestContextThatEndsWhileStaleStatementsAreReplacedLeavesAPoolThatServes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	spoiltBy := func(look int) (ended bool) {
		pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1))
		defer pool.Close()
		join := func(ctx context.Context, key string) error {
			return pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, scope, key, hashA, answer(ok))
				return err
			})
		}
		if err := join(ctx, fmt.Sprint("warm", look)); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, "deallocate idem_claim_at_once"); err != nil {
			t.Fatal(err)
		}
		late := newEndsAtLook(look)
		_ = join(late, fmt.Sprint("late", look)) // fails, or does not
		var err error
		for range 2 {
			if _, err = idem.Do(ctx, pool, scope, fmt.Sprint("next", look), hashA, answer(ok)); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("after look %d the pool answers: %v", look, err)
		}
		return late.Err() != nil
	}
	look := 1
	for spoiltBy(look) {
		look++
	}
	if look < 5 {
		t.Errorf("the context was looked at %d times: this test has no trap", look-1)
	}
}
