package promises_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestKeyOfAnOpenTransactionIsInProgressForAllOthersAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	holder := l.begin(ctx)
	if _, err := idem.DoTx(ctx, holder, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	inProgress := func(name string, err error) {
		t.Helper()
		var busy *idem.InProgressError
		ok := errors.As(err, &busy)
		if !ok || !errors.Is(err, idem.ErrInProgress) || busy.RetryAfter != time.Second || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want ErrInProgress", name, err)
		}
	}
	for _, hash := range []idem.Hash{hashA, hashB} {
		_, err := idemDo(ctx, elsewhere, scope, "k", hash, l.charge("k"), idem.WithWait(0))
		inProgress("Do", err)
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			_, err := idem.DoTx(ctx, tx, scope, "k", hash, l.charge("k"))
			inProgress("DoTx", err)
			return note(ctx, tx, "bystander")
		})
		if err != nil {
			t.Errorf("the other caller's transaction: %v", err)
		}
	}
	if err := holder.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	l.wantOnce("k")
	if l.runs.Load() != 1 || l.entries("bystander") != 2 {
		t.Errorf("%d runs, %d bystanders", l.runs.Load(), l.entries("bystander"))
	}
}

func TestKeyOfARunningDoIsInProgressForAJoinedCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	held := l.hold(t, "k", hashA, nil)
	tx := l.begin(ctx)
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v, want ErrInProgress", err)
	}
	held.release()
	if err := held.wait(t); err != nil {
		t.Fatal(err)
	}
	if res, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); err != nil || !res.Replayed {
		t.Errorf("the same transaction, later: %+v, %v", res, err)
	}
}

func TestDoWaitsForAJoinedCallAndReplaysOrTakesOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, commit := range map[string]bool{"commit": true, "rollback": false} {
		tx := l.begin(ctx)
		first, err := idem.DoTx(ctx, tx, scope, name, hashA, l.charge(name))
		if err != nil {
			t.Fatal(err)
		}
		w, done := newWatch(), make(chan struct{})
		var res idem.Result
		go func() {
			defer close(done)
			res, err = idemDo(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit), idem.WithObserver(w))
		}()
		w.await(t, "waiting", 1)
		if commit {
			tx.Commit(ctx)
		} else {
			tx.Rollback(ctx)
		}
		await(t, "Do to return", done)
		if err != nil || res.Replayed != commit || (res.ExecutionID == first.ExecutionID) != commit {
			t.Errorf("after %s: %+v, %v", name, res, err)
		}
		l.wantOnce(name)
	}
}

func TestFailedJoinedCallHoldsNoLockOnItsKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	_, err := idem.DoTx(ctx, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		l.charge("k")(tx)
		return ok, errBusiness
	})
	if !errors.Is(err, errBusiness) {
		t.Fatal(err)
	}
	if n := l.count(`select count(*) from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database())`); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
	l.wantFree("k")
	if res, err := idem.DoTx(ctx, tx, scope, "k", hashB, l.charge("k")); err != nil || !res.Replayed {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestConcurrentJoinedCallsExecuteOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			for {
				err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
					return err
				})
				if err == nil {
					return
				}
				if !idem.Retryable(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	l.wantOnce("k")
}
