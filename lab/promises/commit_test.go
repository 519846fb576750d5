package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// The test server waits for a synchronous standby that does not exist. By default
// synchronous_commit = local avoids the wait. A transaction that sets it to on blocks in its COMMIT
// until the test ends the wait: it is durable, invisible to others, and has no answer.
const parkCommit = "set local synchronous_commit = on"

const commitIsParked = `select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`

func requireGhostStandby(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var standbys string
	noError(t, pool.QueryRow(context.Background(), "show synchronous_standby_names").Scan(&standbys))
	if standbys == "" {
		if os.Getenv("IDEM_TEST_REQUIRE") != "" {
			t.Fatal("IDEM_TEST_REQUIRE is set, but the server has no synchronous_standby_names")
		}
		t.Skip("the server has no synchronous_standby_names: `make test` starts one that has")
	}
}

// A COMMIT that has no answer yet ends as a COMMIT, whatever meets its session or its caller.
// Postgres does not report that a backend is still waiting, so each answer is that of the COMMIT.
func TestDo_InterruptedCommitIsACommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		function string // of the server, called on the blocked backend
		cancels  bool   // the caller's context ends first
		want     []string
	}{
		"the session is terminated": {"pg_terminate_backend", false, []string{"outcome_unknown", "resolved_committed", "executed"}},
		"the statement is canceled": {"pg_cancel_backend", false, []string{"executed"}},
		"the context ends":          {"pg_cancel_backend", true, []string{"executed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, w := newLedger(t), newWatch()
			requireGhostStandby(t, l.pool)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var result idem.Result
			var secret []byte
			done := inBackground(func() (err error) {
				result, err = idemDo(ctx, l.pool, scope, "k", hashA, l.chargeParked("k", &secret), idem.WithObserver(w), patient)
				return err
			})
			awaitTrue(t, l.pool, commitIsParked)
			other := l.process()
			wantIs(t, errOf(idemDo(context.Background(), other, scope, "k", hashA, l.charge("k"), idem.WithWait(0))), idem.ErrInProgress)
			if test.cancels {
				cancel()
			}
			l.signalParked(test.function)
			if err := await(t, "the call", done); err != nil || result.Replayed || l.runs.Load() != 1 {
				t.Fatalf("%+v, %v after %d runs", result, err, l.runs.Load())
			}
			wantSame(t, test.want, w.all())
			l.wantOnce("k")
			wantReplay(t, name, result)(idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k")))
		})
	}
}

// impatient shortens every wait of a call after its context has ended. patient makes these waits
// so long that a slow machine does not end them.
var (
	impatient = withLimits(limit, 20*time.Millisecond, 200*time.Millisecond)
	patient   = withLimits(limit, limit, limit)
)

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
	l.wantCount("waiting COMMITs", n, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`)
	l.wantCount("rows that no standby has", 0, "select (select count(*) from idem.records) + (select count(*) from ledger)")
}

// releaseParked makes Postgres finish the COMMITs that wait for the standby.
func (l *ledger) releaseParked() { l.signalParked("pg_cancel_backend") }

// signalParked calls a server function on each backend whose COMMIT waits for the standby.
func (l *ledger) signalParked(function string) {
	l.t.Helper()
	execute(l.t, l.pool, "select "+function+"(pid) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'")
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
func TestDo_CommitWithoutAnswerIsUnknownAndNeverCanceled(t *testing.T) {
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
			var secret []byte
			done := calling(ctx, pool, "k", hashA, l.chargeParked("k", &secret), impatient, idem.WithObserver(w))
			awaitTrue(t, l.pool, commitIsParked)
			cancel()
			unknown := wantUnknown(t, await(t, "the call", done))
			if !errors.Is(unknown, context.Canceled) {
				t.Errorf("err = %v", unknown)
			}
			wantSame(t, []string{"outcome_unknown", "unknown"}, w.all())
			if n := txn.PendingCommits(pool); n != 1 {
				t.Errorf("%d COMMITs are counted", n)
			}
			wantIs(t, errOf(idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))), idem.ErrInProgress)
			made.wantNoneFor(t, secret)
			l.wantWaiting(1)
			l.releaseParked()
			waiting.Until(t, "the connection to be let go", func() bool { return txn.PendingCommits(pool) == 0 })
			l.wantReplayed(pool, "k", unknown)
		})
	}
}

// pgx sends a CancelRequest when a connection breaks. The server must not accept that request.
// While the COMMIT continues and the server cannot be reached, the outcome is unknown.
func TestDo_LostConnectionDoesNotCancelCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ctx  context.Context
		lose func(*pgproxy.Proxy)
	}{
		"reset, no context": {context.Background(), func(p *pgproxy.Proxy) { p.Cut(pgproxy.Reset) }},
		"hangup, a context": {t.Context(), func(p *pgproxy.Proxy) { p.Cut(pgproxy.Hangup) }},
		// Hangup, because a Reset may end the dial of the CancelRequest before the request is written.
		"server unreachable": {t.Context(), func(p *pgproxy.Proxy) { p.Refuse(pgproxy.Hangup); p.Cut(pgproxy.Reset) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			requireGhostStandby(t, p.pool)
			var made dials
			pool := pgtest.Open(t, p.proxy.DSN(), made.on)
			var secret []byte
			done := calling(test.ctx, pool, "k", hashA, p.chargeParked("k", &secret), impatient, idem.WithObserver(p.watch))
			awaitTrue(t, p.pool, commitIsParked)
			test.lose(p.proxy)
			unknown := wantUnknown(t, await(t, "the call", done))
			wantSame(t, []string{"outcome_unknown", "unknown"}, p.watch.all())
			waiting.Until(t, "the request to cancel", func() bool { return len(made.cancels()) > 0 })
			made.wantNoneFor(t, secret)
			p.wantWaiting(1)
			p.releaseParked()
			p.wantReplayed(p.pool, "k", unknown)
		})
	}
}

// COMMITs that continue without their callers hold at most as many connections as the pool may
// have. They end with the pool.
func TestDo_UnansweredCommitsAreBoundedAndEndWithThePool(t *testing.T) {
	t.Parallel()
	const calls, most = 3, 2
	l := newLedger(t)
	requireGhostStandby(t, l.pool)
	var made dials
	pool := l.process(maxConns(most), made.on)
	var unknown []*idem.OutcomeUnknownError
	secrets := make([][]byte, calls)
	for i := range calls {
		ctx, cancel := context.WithCancel(context.Background())
		done := calling(ctx, pool, fmt.Sprint("k", i), hashA, l.chargeParked(fmt.Sprint("k", i), &secrets[i]), impatient)
		awaitTrue(t, l.pool, fmt.Sprintf(`select count(*) = %d from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`, i+1))
		cancel()
		unknown = append(unknown, wantUnknown(t, await(t, "the call", done)))
		if n := txn.PendingCommits(pool); n != min(i+1, most) {
			t.Errorf("%d COMMITs are counted after %d calls", n, i+1)
		}
	}
	pool.Close()
	waiting.Until(t, "the background to end", func() bool { return txn.PendingCommits(pool) == 0 })
	for _, secret := range secrets {
		made.wantNoneFor(t, secret)
	}
	l.wantWaiting(calls)
	l.releaseParked()
	for i, err := range unknown {
		l.wantReplayed(l.pool, fmt.Sprint("k", i), err)
	}
}

// During a COMMIT the connection has a secret key that the server does not know, so that no
// CancelRequest can reach the COMMIT. The next user of the connection must be able to cancel again.
func TestDo_NextUserOfTheConnectionCanCancelItsQuery(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"committed": "select 1", "refused": "insert into u values (1), (1)", "not sent, because the record is gone": "delete from idem.records",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			l := newLedger(t)
			execute(t, l.pool, "create table u (id int unique deferrable initially deferred)")
			pool := l.process(maxConns(1))
			_, err := idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) { execute(t, tx, sql); return ok, nil })
			if committed := name == "committed"; (err == nil) != committed {
				t.Errorf("err = %v", err)
			}
			waitIdle(t, pool)
			done := inBackground(func() error { return errOf(pool.Exec(ctx, "select pg_sleep(3600)")) })
			const asleep = "from pg_stat_activity where datname = current_database() and state = 'active' and query like 'select pg_sleep%'"
			awaitTrue(t, l.pool, "select count(*) = 1 "+asleep)
			cancel()
			if err := await(t, "the query", done); err == nil || pool.Stat().NewConnsCount() != 1 {
				t.Errorf("err = %v, %d connections were made", err, pool.Stat().NewConnsCount())
			}
			awaitTrue(t, l.pool, "select count(*) = 0 "+asleep)
		})
	}
}
