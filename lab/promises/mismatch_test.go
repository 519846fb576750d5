package promises_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// A duplicate in the same process learns as little about the stored request as from the database.
func TestMismatchFoundInMemoryRevealsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	key := "a-credential-" + strings.Repeat("x", 20)
	leader := l.hold(t, key, hashA, nil)
	w := newWatch()
	type reply struct {
		result idem.Result
		err    error
	}
	replies := make(chan reply, 1)
	acquired := l.pool.Stat().AcquireCount()
	go func() {
		res, err := idemDo(ctx, l.pool, scope, key, hashB, l.charge(key), idem.WithWait(limit), idem.WithObserver(w))
		replies <- reply{res, err}
	}()
	w.await(t, "waiting", 1)
	leader.release()
	leader.wait(t)
	got := await(t, "the follower", replies)
	if l.pool.Stat().AcquireCount() != acquired {
		t.Error("the follower asked the database")
	}
	if !errors.Is(got.err, idem.ErrMismatch) || strings.Contains(got.err.Error(), key) {
		t.Errorf("err = %v", got.err)
	}
	var mismatch *idem.MismatchError
	if !errors.As(got.err, &mismatch) || strings.Contains(mismatch.Key, key) || !mismatch.CreatedAt.Equal(leader.result.CreatedAt) {
		t.Errorf("%+v", mismatch)
	}
	if diff := cmp.Diff(idem.Result{}, got.result); diff != "" {
		t.Error(diff)
	}
}

// A caller with a hash that was just refused gets the same refusal without another query.
func TestMismatchThatTheDatabaseTellsIsSharedByAllWithThatHash(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, l.pool)
	unlock := lockRecords(t, pgtest.Open(t, dsn))
	acquired := l.pool.Stat().AcquireCount()

	const followers = 8
	w := newWatch()
	var calls sync.WaitGroup
	for range 1 + followers {
		calls.Go(func() {
			_, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w))
			var mismatch *idem.MismatchError
			if !errors.As(err, &mismatch) {
				t.Errorf("err = %v", err)
			}
		})
	}
	w.await(t, "waiting", followers)
	unlock()
	calls.Wait()
	if n := l.pool.Stat().AcquireCount() - acquired; n != 1 {
		t.Errorf("%d callers asked the database", n)
	}
	l.wantOnce("k")
}
