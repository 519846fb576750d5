package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// impatient shortens every wait of a call after its context has ended.
var impatient = withLimits(limit, 20*time.Millisecond, 200*time.Millisecond)

// chargeParked is like charge, but its COMMIT waits for a standby. It stores the secret key of its
// session in secret.
func (l *ledger) chargeParked(key string, secret *[]byte) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		*secret = bytes.Clone(tx.Conn().PgConn().SecretKey())
		if _, err := tx.Exec(context.Background(), parkCommit); err != nil {
			return idem.Response{}, err
		}
		return l.charge(key)(tx)
	}
}

func wantUnknown(t *testing.T, err error) *idem.OutcomeUnknownError {
	t.Helper()
	var unknown *idem.OutcomeUnknownError
	if !errors.As(err, &unknown) || !errors.Is(err, idem.ErrOutcomeUnknown) || !idem.Retryable(err) {
		t.Fatalf("err = %v", err)
	}
	return unknown
}

// wantWaiting fails the test unless n COMMITs wait for the standby and none of their writes is
// visible.
func (l *ledger) wantWaiting(n int) {
	l.t.Helper()
	if got := l.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`); got != n {
		l.t.Errorf("%d COMMITs wait for the standby, want %d", got, n)
	}
	if got := l.count("select count(*) from idem.records") + l.count("select count(*) from ledger"); got != 0 {
		l.t.Errorf("%d rows are to be seen that no standby has", got)
	}
}

// releaseParked makes Postgres finish the COMMITs that wait for the standby.
func (l *ledger) releaseParked() {
	l.t.Helper()
	_, err := l.pool.Exec(context.Background(),
		"select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'")
	if err != nil {
		l.t.Fatal(err)
	}
}

// wantReplayed fails the test unless a call for key replays the execution whose outcome was
// unknown.
func (l *ledger) wantReplayed(pool *pgxpool.Pool, key string, unknown *idem.OutcomeUnknownError) {
	l.t.Helper()
	res, err := idemDo(context.Background(), pool, scope, key, hashA, l.charge(key), idem.WithWait(limit))
	if err != nil || !res.Replayed || res.ExecutionID != unknown.ExecutionID {
		l.t.Errorf("%+v, %v, want a replay of %s", res, err, unknown.ExecutionID)
	}
	l.wantOnce(key)
}

// A commit that no standby has would be lost in a failover. The COMMIT continues after its caller
// has left.
func TestCommitThatOutlastsContextAndGraceIsUnknownAndNeverCancelled(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			requireGhostStandby(t, l.pool)
			var made dials
			pool := pgtest.Open(t, over(t, l.pool.Config().ConnString()), made.on)
			ctx, cancel := context.WithCancel(context.Background())
			w := newWatch()
			done := make(chan error, 1)
			var secret []byte
			go func() {
				_, err := idemDo(ctx, pool, scope, "k", hashA, l.chargeParked("k", &secret), impatient, idem.WithObserver(w))
				done <- err
			}()
			awaitTrue(t, l.pool, commitIsParked)
			cancel()
			unknown := wantUnknown(t, await(t, "the call", done))
			if !errors.Is(unknown, context.Canceled) {
				t.Errorf("err = %v", unknown)
			}
			if diff := cmp.Diff([]string{"outcome_unknown", "unknown"}, w.all()); diff != "" {
				t.Error(diff)
			}
			l.wantWaiting(1)
			if n := txn.PendingCommits(pool); n != 1 {
				t.Errorf("%d COMMITs are counted", n)
			}
			if _, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("err = %v", err)
			}
			made.wantNoneFor(t, secret)
			l.wantWaiting(1)
			l.releaseParked()
			eventually(t, "the connection to be let go", func() bool { return txn.PendingCommits(pool) == 0 })
			l.wantReplayed(pool, "k", unknown)
		})
	}
}

// pgx sends a CancelRequest when a connection breaks. The server must not accept that request.
func TestConnectionCutDuringCommitDoesNotCancelIt(t *testing.T) {
	t.Parallel()
	for _, how := range []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup} {
		for name, ctx := range map[string]context.Context{"a context": t.Context(), "no context": context.Background()} {
			t.Run(fmt.Sprint(how, "/", name), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				requireGhostStandby(t, p.pool)
				var made dials
				pool := pgtest.Open(t, p.proxy.DSN(), made.on)
				done := make(chan error, 1)
				var secret []byte
				go func() {
					_, err := idemDo(ctx, pool, scope, "k", hashA, p.chargeParked("k", &secret), impatient)
					done <- err
				}()
				awaitTrue(t, p.pool, commitIsParked)
				p.proxy.Cut(how)
				unknown := wantUnknown(t, await(t, "the call", done))
				eventually(t, "the request to cancel", func() bool { return len(made.cancels()) > 0 })
				made.wantNoneFor(t, secret)
				p.wantWaiting(1)
				p.releaseParked()
				p.wantReplayed(pool, "k", unknown)
			})
		}
	}
}

// COMMITs that continue without their callers hold at most as many connections as the pool may
// have. They end with the pool.
func TestUnansweredCommitsAreBoundedAndEndWithThePool(t *testing.T) {
	t.Parallel()
	const calls, most = 4, 2
	l := newLedger(t)
	requireGhostStandby(t, l.pool)
	var made dials
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(most), made.on)
	var unknown []*idem.OutcomeUnknownError
	secrets := make([][]byte, calls)
	for i := range calls {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := idemDo(ctx, pool, scope, fmt.Sprint("k", i), hashA, l.chargeParked(fmt.Sprint("k", i), &secrets[i]), impatient)
			done <- err
		}()
		awaitTrue(t, l.pool, fmt.Sprintf(`select count(*) = %d from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`, i+1))
		cancel()
		unknown = append(unknown, wantUnknown(t, await(t, "the call", done)))
		if n := txn.PendingCommits(pool); n != min(i+1, most) {
			t.Errorf("%d COMMITs are counted after %d calls", n, i+1)
		}
	}
	pool.Close()
	eventually(t, "the background to end", func() bool { return txn.PendingCommits(pool) == 0 && made.open() == 0 })
	for _, secret := range secrets {
		made.wantNoneFor(t, secret)
	}
	l.wantWaiting(calls)
	l.releaseParked()
	for i, err := range unknown {
		l.wantReplayed(l.pool, fmt.Sprint("k", i), err)
	}
}

// A COMMIT that continues checks whether its pool was closed, by acquiring a connection of an empty
// pool. In an outage that dials. All such COMMITs together dial one at a time, with pauses.
func TestUnansweredCommitsDialOneAtATimeInAnOutage(t *testing.T) {
	t.Parallel()
	const calls, pause = 4, time.Second
	l := newLedger(t)
	requireGhostStandby(t, l.pool)
	var outage atomic.Bool
	dialled := make(chan time.Time, 100)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(calls), func(config *pgxpool.Config) {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if outage.Load() {
				dialled <- time.Now()
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return dial(ctx, network, addr)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	secrets := make([][]byte, calls)
	for i := range calls {
		key := fmt.Sprint("k", i)
		group.Go(func() { idemDo(ctx, pool, scope, key, hashA, l.chargeParked(key, &secrets[i]), impatient) })
	}
	awaitTrue(t, l.pool, fmt.Sprintf(`select count(*) = %d from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`, calls))
	outage.Store(true)
	cancel()
	group.Wait()
	pool.Reset() // closes the connections that the calls have left
	eventually(t, "the pool to have done with the calls", func() bool { return pool.Stat().ConstructingConns() == 0 })
	for len(dialled) > 0 {
		<-dialled // dials of the calls themselves, for the outcome of their COMMITs
	}
	first := await(t, "a look", dialled)
	if second := await(t, "another look", dialled); second.Sub(first) < pause {
		t.Errorf("dialled again after %v", second.Sub(first))
	}
	l.releaseParked()
}
