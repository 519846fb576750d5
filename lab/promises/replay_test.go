package promises_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// The record was changed by hand. The error must not contain the stored data.
func TestStoredHeaderThatIsNoneIsAnErrorWithoutItsContents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	charge := func(opts ...idem.Option) error {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), opts...)
		return err
	}
	if err := charge(); err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{`{"Card": [4929123456789012]}`, `{"Card": "4929123456789012"}`, `4929123456789012`, `[4929123456789012]`} {
		if _, err := l.pool.Exec(ctx, "update idem.records set header = $1", header); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{charge(), charge(idem.WithReplayLikely()), charge(idem.WithWait(0))} {
			if !errors.Is(err, idem.ErrUnreadable) || strings.Contains(err.Error(), "4929") {
				t.Errorf("%s: %v", header, err)
			}
		}
	}
	if n := l.runs.Load(); n != 1 {
		t.Errorf("fn ran %d times", n)
	}
	if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = now()"); err != nil {
		t.Fatal(err)
	}
	if err := charge(); err != nil { // an expired record does not matter, whatever it contains
		t.Errorf("once it has expired: %v", err)
	}
}

func TestReplayWritesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	row := func() (xmin, xmax string) {
		t.Helper()
		if err := l.pool.QueryRow(ctx, "select xmin::text, xmax::text from idem.records").Scan(&xmin, &xmax); err != nil {
			t.Fatal(err)
		}
		return xmin, xmax // xmax would be the id of a transaction that has locked the row
	}
	xmin, xmax := row()
	if res, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil || !res.Replayed {
		t.Fatal(res, err)
	}
	if min, max := row(); min != xmin || max != xmax {
		t.Errorf("the row was touched: xmin %s, xmax %s; had %s, %s", min, max, xmin, xmax)
	}
	// Run the same statements in a transaction of the test. The test can then query whether that
	// transaction has an id and which locks it holds.
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if res, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); err != nil || !res.Replayed {
		t.Fatal(res, err)
	}
	var assigned *string
	var advisory int
	err = tx.QueryRow(ctx, `select pg_current_xact_id_if_assigned()::text,
		(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())`).Scan(&assigned, &advisory)
	if err != nil || assigned != nil || advisory != 0 {
		t.Errorf("replay has transaction id %v and %d advisory locks, %v", assigned, advisory, err)
	}
}

func TestExpiredKeyIsNewAgainForExactlyOneCaller(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	other := pgtest.Open(t, dsn)
	for round := range 10 {
		key := fmt.Sprint("k", round)
		old, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = clock_timestamp() where key = $1", key); err != nil {
			t.Fatal(err)
		}
		var executed atomic.Int64
		var calls sync.WaitGroup
		for i := range 32 {
			pool := l.pool
			if i%2 == 0 {
				pool = other
			}
			calls.Go(func() {
				res, err := idemDo(ctx, pool, scope, key, hashB, l.charge(key), idem.WithWait(limit))
				if err != nil {
					t.Error(err)
				}
				if !res.Replayed {
					executed.Add(1)
				}
				if res.ExecutionID == old.ExecutionID || string(res.Body) == string(old.Body) {
					t.Errorf("%s: the expired response was replayed", key)
				}
			})
		}
		calls.Wait()
		if executed.Load() != 1 || l.entries(key) != 2 || l.records(key) != 1 {
			t.Errorf("%s: %d executed, %d effects, %d records", key, executed.Load(), l.entries(key), l.records(key))
		}
	}
}

func TestRecordLivesItsFullTTLAfterTheCommitOfASlowFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, test := range []struct {
		name  string
		ttl   time.Duration
		sleep float64
		moved bool
	}{
		{"fast fn keeps the expiry of the claim", time.Hour, 0, false},
		{"fn slower than the TTL moves it", 100 * time.Millisecond, 0.2, true},
	} {
		res, err := idemDo(ctx, l.pool, scope, test.name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(ctx, "select pg_sleep($1)", test.sleep); err != nil {
				return idem.Response{}, err
			}
			return l.charge(test.name)(tx)
		}, idem.WithTTL(test.ttl))
		if err != nil {
			t.Fatal(err)
		}
		if left := res.ExpiresAt.Sub(res.CompletedAt); left < test.ttl {
			t.Errorf("%s: %v left after completion, want %v", test.name, left, test.ttl)
		}
		if kept := res.ExpiresAt.Sub(res.CreatedAt); (kept > test.ttl+test.ttl/8) != test.moved {
			t.Errorf("%s: expires %v after the claim", test.name, kept)
		}
	}
}

func TestCompletingARecordIsAHotUpdate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	const n = 50
	for i := range n {
		key := fmt.Sprint("k", i)
		if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.pool.Exec(ctx, "select pg_stat_force_next_flush()"); err != nil {
		t.Logf("no forced flush before PostgreSQL 15: %v", err)
	}
	l.pool.Reset() // a backend reports its statistics when it ends
	awaitTrue(t, l.pool, fmt.Sprintf(`select n_tup_upd >= %d from pg_stat_user_tables where relid = 'idem.records'::regclass`, n))
	if hot := l.count(`select n_tup_hot_upd from pg_stat_user_tables where relid = 'idem.records'::regclass`); hot < n*9/10 {
		t.Errorf("%d of %d updates were HOT", hot, n)
	}
}

func TestScopesAndDatabasesKeepEqualKeysApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, elsewhere := newLedger(t), newLedger(t)
	for i, scope := range []string{"a", "b", idem.Scope("a", "b/c"), idem.Scope("a/b", "c")} {
		for _, pool := range []*ledger{l, elsewhere} {
			res, err := idemDo(ctx, pool.pool, scope, "k", hashA, pool.charge("k"))
			if err != nil || res.Replayed {
				t.Errorf("scope %d: %+v, %v", i, res, err)
			}
		}
	}
	if l.entries("k") != 4 || elsewhere.entries("k") != 4 {
		t.Errorf("%d and %d effects, want 4 each", l.entries("k"), elsewhere.entries("k"))
	}
}
