package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// A lock on the record itself blocks a claim inside the server, and no advisory lock shows it.
// These tests release the lock after the answer, so a call that waited for the lock would run into
// limit.

func TestWaitEndsThoughTheClaimIsBlocked(t *testing.T) {
	t.Parallel()
	for name, hold := range holders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			hold(t, l)
			wantInProgress(t, l, "k")
		})
	}
	t.Run("a batch, with the lock and past its locks", func(t *testing.T) {
		t.Parallel()
		ctx := context.Background()
		l := newLedger(t)
		batch := l.begin(ctx)
		for i := range saved + 2 {
			if _, err := idem.DoTx(ctx, batch, scope, fmt.Sprint("k", i), hashA, answer(ok)); err != nil {
				t.Fatal(err)
			}
		}
		wantInProgress(t, l, "k0")
		wantInProgress(t, l, fmt.Sprint("k", saved+1))
	})
}

// wantInProgress makes a call with a short wait. It fails the test unless the call returns
// ErrInProgress and the pool still works. The claim's connection is closed, because a CancelRequest
// may still arrive for it.
func wantInProgress(t *testing.T, l *ledger, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	on := ledgerOn(t, pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1)))
	_, err := idemDo(ctx, on.pool, scope, key, hashA, l.charge(key), idem.WithWait(10*time.Millisecond))
	if !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("%s: err = %v", key, err)
	}
	waitIdle(t, on.pool)
	on.wantFree("after " + key)
	waitIdle(t, on.pool)
	if n := on.pool.Stat().NewConnsCount(); n > 2 {
		t.Errorf("%s: the pool made %d connections", key, n)
	}
}

// A migration that locks the table blocks claims of every key. The server's answer is the same as
// for a lock on one record.
func TestTableThatIsLockedIsWaitedForAsAKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*pgxpool.Config){
		"no lock_timeout": func(*pgxpool.Config) {},
		"a lock_timeout":  func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["lock_timeout"] = "10ms" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			l := newLedger(t)
			on := ledgerOn(t, pgtest.Open(t, l.pool.Config().ConnString(), configure))
			on.charged(ctx, "before") // prepares the statements
			unlock := lockRecords(t, l.pool)
			if _, err := idemDo(ctx, on.pool, scope, "k", hashA, on.charge("k"), idem.WithWait(10*time.Millisecond)); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("err = %v", err)
			}
			patient := make(chan error, 1)
			go func() {
				_, err := idemDo(ctx, on.pool, scope, "k", hashA, on.charge("k"), idem.WithWait(limit))
				patient <- err
			}()
			awaitBlocked(t, l.pool, 1)
			unlock()
			if err := await(t, "the call that has time", patient); err != nil {
				t.Error(err)
			}
			on.wantOnce("k")
		})
	}
}

// A follower with WithWait(0) must not wait for a leader that may wait.
func TestNoWaitAnswersWhileTheLeaderIsBlocked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l := newLedger(t)
	l.charged(ctx, "k")
	purge := l.begin(ctx)
	if _, err := purge.Exec(ctx, "delete from idem.records"); err != nil {
		t.Fatal(err)
	}
	leader := make(chan error, 1)
	go func() {
		_, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(time.Hour))
		leader <- err
	}()
	awaitBlocked(t, l.pool, 1)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v", err)
	}
	if err := purge.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the leader", leader); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}

// bystander marks the contexts that inTurn does not block.
type bystander struct{}

// inTurn lets everyone who acquires a connection from a pool wait for a turn.
type inTurn struct {
	acquiring
	turn chan struct{}
}

func (a inTurn) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if ctx.Value(bystander{}) == nil {
		a.asked <- struct{}{}
		<-a.turn
	}
	return ctx
}

// A leader that first looks the record up releases its connection. It may then get none to claim
// the key.
func TestNoWait_AfterTheLeaderHasLookedForTheRecord(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tracer := inTurn{acquiring{asked: make(chan struct{}, 8)}, make(chan struct{}, 1)}
	l := newLedger(t)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), func(config *pgxpool.Config) { config.ConnConfig.Tracer = tracer })
	leader := make(chan error, 1)
	go func() {
		_, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithReplayLikely())
		leader <- err
	}()
	await(t, "the leader to look", tracer.asked)
	tracer.turn <- struct{}{}
	await(t, "the leader to claim", tracer.asked)
	hog, err := pool.Acquire(context.WithValue(ctx, bystander{}, true))
	if err != nil {
		t.Fatal(err)
	}
	close(tracer.turn)
	fastest := limit
	for range 5 {
		start := time.Now()
		if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("err = %v", err)
		}
		fastest = min(fastest, time.Since(start))
	}
	if fastest >= tired {
		t.Errorf("the fastest of five took %v", fastest)
	}
	hog.Release()
	if err := await(t, "the leader", leader); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}
