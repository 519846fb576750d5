package promises_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// discards makes a pool discard all prepared statements when a connection is released.
func discards(config *pgxpool.Config) {
	config.AfterRelease = func(conn *pgx.Conn) bool {
		err := conn.DeallocateAll(context.Background())
		if err == nil {
			_, err = conn.Exec(context.Background(), "discard all", pgx.QueryExecModeSimpleProtocol)
		}
		return err == nil
	}
}

func TestPoolThatDiscardsStatementsOnReleaseServesEveryCallOnTheSameConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(2), discards)
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			for j := range 5 {
				key := fmt.Sprint("k", i, "/", j)
				for _, opts := range [][]idem.Option{nil, {idem.WithReplayLikely()}, {idem.WithWait(0)}} {
					if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), opts...); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
				if _, err := idem.Lookup(ctx, l.pool, scope, key); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					_, err := idem.DoTx(ctx, tx, scope, "joined "+key, hashA, l.charge("joined "+key))
					return err
				}); err != nil {
					t.Errorf("%s, joined: %v", key, err)
				}
			}
		})
	}
	calls.Wait()
	waitIdle(t, l.pool)
	if n := l.pool.Stat().NewConnsCount(); n > 2 {
		t.Errorf("the pool made %d connections", n)
	}
	l.wantOnce("k0/0")
	l.wantOnce("joined k7/4")
}

// The application has prepared a statement under a name that idem uses. The error must name that
// statement.
func TestStatementOfTheApplicationUnderANameOfOursIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), func(config *pgxpool.Config) {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Prepare(ctx, "idem_load", "select 1")
			return err
		}
	})
	_, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"))
	if err == nil || !strings.Contains(err.Error(), "prepared statement named idem_load") || idem.CauseOf(err) != idem.CausePostgres {
		t.Errorf("err = %v", err)
	}
	l.wantNone("k")
}

// The statements sent together with COMMIT turn out to be missing when fn has already run. That
// must not happen again on the same connection.
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

// endsAtLook is a context that ends when it is checked for the n-th time.
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

// The connection must not be marked as having statements that no longer exist. Wherever the context
// ends, later calls succeed. One failure is allowed, in which the loss is detected.
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
		_ = join(late, fmt.Sprint("late", look)) // may fail
		var err error
		for range 2 {
			if _, err = idemDo(ctx, pool, scope, fmt.Sprint("next", look), hashA, answer(ok)); err == nil {
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
