package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestThousandDuplicatesWaitInMemoryAndBystandersKeepTheirConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(4))
	first := l.hold(t, "hot", hashA, nil)
	acquired := l.pool.Stat().AcquireCount()

	const duplicates = 999
	w := newWatch()
	results := make([]idem.Result, duplicates)
	var storm sync.WaitGroup
	for i := range duplicates {
		storm.Go(func() {
			var err error
			results[i], err = idemDo(ctx, l.pool, scope, "hot", hashA, l.charge("hot"), idem.WithWait(limit), idem.WithObserver(w))
			if err != nil {
				t.Error(err)
			}
		})
	}
	w.await(t, "waiting", duplicates)
	if n := l.pool.Stat().AcquireCount(); n != acquired {
		t.Errorf("the duplicates took %d connections", n-acquired)
	}

	empty := l.pool.Stat().EmptyAcquireCount()
	for i := range 50 {
		if _, err := idemDo(ctx, l.pool, scope, fmt.Sprint("bystander", i), hashA, l.charge("bystander")); err != nil {
			t.Fatal(err)
		}
	}
	// Each connection that the pool has yet to open can cause one wait.
	if n := l.pool.Stat().EmptyAcquireCount() - empty; n > 4 {
		t.Errorf("bystanders waited %d times for a connection", n)
	}

	first.release()
	if err := first.wait(t); err != nil {
		t.Fatal(err)
	}
	storm.Wait()
	want := first.result
	want.Replayed = true
	for i := range results {
		if diff := cmp.Diff(want, results[i]); diff != "" {
			t.Fatalf("duplicate %d (-want +got):\n%s", i, diff)
		}
	}
	l.wantOnce("hot")
}

func TestDuplicatesOfAnotherProcessShareOneWaiterThatHoldsNoConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	other := pgtest.Open(t, dsn, maxConns(1)) // idem treats another pool as another process
	first := l.hold(t, "k", hashA, nil)

	const duplicates = 100
	w := newWatch()
	var calls sync.WaitGroup
	for range duplicates {
		calls.Go(func() {
			res, err := idemDo(ctx, other, scope, "k", hashA, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w))
			if err != nil || !res.Replayed {
				t.Errorf("res = %+v, err = %v", res, err)
			}
		})
	}
	w.await(t, "waiting", duplicates)
	// Others can acquire the only connection of the pool repeatedly.
	for i := range 20 {
		if _, err := idemDo(ctx, other, scope, fmt.Sprint("bystander", i), hashA, l.charge("bystander")); err != nil {
			t.Fatal(err)
		}
	}
	first.release()
	if err := first.wait(t); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	l.wantOnce("k")
}

func TestExactlyOneWaiterTakesOverWhenTheFirstRunFails(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, sameProcess := range []bool{true, false} {
		t.Run(fmt.Sprintf("same process %v", sameProcess), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			l := ledgerOn(t, pgtest.Open(t, dsn))
			pool := l.pool
			if !sameProcess {
				pool = pgtest.Open(t, dsn)
			}
			first := l.hold(t, "k", hashA, errBusiness)
			w := newWatch()
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() {
					if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w)); err != nil {
						t.Error(err)
					}
				})
			}
			w.await(t, "waiting", 20)
			first.release()
			if err := first.wait(t); !errors.Is(err, errBusiness) {
				t.Errorf("err = %v", err)
			}
			calls.Wait()
			if n := l.runs.Load(); n != 2 {
				t.Errorf("fn ran %d times, want the failed one and one more", n)
			}
			if w.count("executed") != 1 || w.count("replayed") != 19 {
				t.Errorf("outcomes: %v", w.all())
			}
			l.wantOnce("k")
		})
	}
}

func TestWaiterTakesOverWhenTheFirstRunPanics(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	begun, gate := make(chan struct{}), make(chan struct{})
	go func() {
		defer func() { recover() }()
		idemDo(ctx, l.pool, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) {
			close(begun)
			<-gate
			panic("boom")
		})
	}()
	await(t, "fn", begun)
	w := newWatch()
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w))
		done <- err
	}()
	w.await(t, "waiting", 1)
	close(gate)
	if err := await(t, "the waiter", done); err != nil {
		t.Fatal(err)
	}
	l.wantOnce("k")
}

func TestWaiterWhoseContextEndsLeavesAtOnceAndDisturbsNobody(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	first := l.hold(t, "k", hashA, nil)
	w := newWatch()
	ctx, cancel := context.WithCancel(context.Background())
	left, stayed := make(chan error, 1), make(chan error, 1)
	call := func(ctx context.Context, done chan error) {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w))
		done <- err
	}
	go call(ctx, left)
	go call(context.Background(), stayed)
	w.await(t, "waiting", 2)
	cancel()
	if err := await(t, "the waiter to leave", left); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	first.release()
	if err := errors.Join(first.wait(t), await(t, "the other waiter", stayed)); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}

func TestNoWaitAnswersAtOnceThatTheKeyIsInProgress(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	l.hold(t, "k", hashA, nil)
	for name, pool := range map[string]*pgxpool.Pool{"same process": l.pool, "another process": pgtest.Open(t, dsn)} {
		_, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
		var inProgress *idem.InProgressError
		if !errors.As(err, &inProgress) || !errors.Is(err, idem.ErrInProgress) || !idem.Retryable(err) {
			t.Fatalf("%s: err = %v", name, err)
		}
		if inProgress.RetryAfter != time.Second {
			t.Errorf("%s: RetryAfter = %v", name, inProgress.RetryAfter)
		}
	}
}

func TestRetryAfterIsAsLongAsTheWaitWithinBounds(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.hold(t, "k", hashA, nil)
	for wait, want := range map[time.Duration]time.Duration{
		time.Second / 2: time.Second, 1200 * time.Millisecond: 1200 * time.Millisecond, 30100 * time.Millisecond: 30 * time.Second,
	} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			_, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(wait))
			var inProgress *idem.InProgressError
			if !errors.As(err, &inProgress) || inProgress.RetryAfter != want {
				t.Errorf("after a wait of %v: %v, want RetryAfter %v", wait, err, want)
			}
		})
	}
}

// tired is how long a call with WithWait(0) waits for a leader whose state is unknown.
const tired = time.Second

// The leader tells a follower with WithWait(0) that it holds the key. The follower returns without
// waiting for tired.
func TestNoWaitLeavesAsSoonAsTheLeaderHoldsTheKey(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.hold(t, "k", hashA, nil)
	fastest := limit
	for range 10 {
		start := time.Now()
		if _, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Fatalf("err = %v", err)
		}
		fastest = min(fastest, time.Since(start))
	}
	if fastest >= tired {
		t.Errorf("the fastest of ten took %v", fastest)
	}
}

// A leader that has its connection is about to answer, even if that is the last connection of the
// pool.
func TestNoWaitStaysWithALeaderThatAsksThroughTheLastConnection(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn, maxConns(1)))
	if _, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	watcher := pgtest.Open(t, dsn)
	for range 50 { // a follower that gets no CPU for a second may leave
		waitIdle(t, l.pool)
		unlock := lockRecords(t, watcher)
		leader, follower := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"))
			leader <- err
		}()
		awaitBlocked(t, watcher, 1)
		go func() {
			_, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
			follower <- err
		}()
		time.Sleep(tired / 4) // several checks by the follower
		unlock()
		if err := await(t, "the leader", leader); err != nil {
			t.Fatal(err)
		}
		switch err := await(t, "the follower", follower); {
		case err == nil:
			return
		case !errors.Is(err, idem.ErrInProgress):
			t.Fatal(err)
		}
	}
	t.Error("whoever does not want to wait leaves whenever the pool is full")
}

// A replay in progress is no reason to return ErrInProgress.
func TestNoWaitIsReplayedWhileOthersReplay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(16))
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			for range 50 {
				begun := time.Now()
				_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
				if err != nil && !(errors.Is(err, idem.ErrInProgress) && time.Since(begun) >= tired) { // the leader may get no CPU for a second
					t.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
}

func TestWaitEndsWithInProgressAfterItsTime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	l.hold(t, "k", hashA, nil)
	for name, pool := range map[string]*pgxpool.Pool{"same process": l.pool, "another process": pgtest.Open(t, dsn)} {
		const wait = 150 * time.Millisecond
		start := time.Now()
		_, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithWait(wait))
		if !errors.Is(err, idem.ErrInProgress) || time.Since(start) < wait {
			t.Errorf("%s: err = %v after %v", name, err, time.Since(start))
		}
	}
}

func TestWaiterWithAnotherHash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		first error
		want  error
	}{
		{"is a mismatch once the first run is committed", nil, idem.ErrMismatch},
		{"executes if the first run failed", errBusiness, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			first := l.hold(t, "k", hashA, test.first)
			w := newWatch()
			done := make(chan error, 1)
			go func() {
				_, err := idemDo(context.Background(), l.pool, scope, "k", hashB, l.charge("k"), idem.WithWait(limit), idem.WithObserver(w))
				done <- err
			}()
			w.await(t, "waiting", 1)
			first.release()
			first.wait(t)
			if err := await(t, "the waiter", done); !errors.Is(err, test.want) {
				t.Errorf("err = %v, want %v", err, test.want)
			}
			l.wantOnce("k")
		})
	}
}

// A mismatch of one duplicate does not affect another duplicate with the right hash.
func TestConcurrentDuplicatesWithRightAndWrongHashesAreToldApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for i := range 32 {
		hash, want := hashA, error(nil)
		if i%2 == 0 {
			hash, want = idem.Hash{byte(2 + i%4)}, idem.ErrMismatch
		}
		calls.Go(func() {
			for range 30 {
				if _, err := idemDo(ctx, l.pool, scope, "k", hash, l.charge("k"), idem.WithWait(limit)); !errors.Is(err, want) {
					t.Errorf("hash %v: err = %v, want %v", hash[0], err, want)
					return
				}
			}
		})
	}
	calls.Wait()
	l.wantOnce("k")
}
