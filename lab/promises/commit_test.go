package promises_test

import (
	"context"
	"errors"
	"github.com/jackc/pgx/v5/pgconn"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// The test server waits for a synchronous standby that does not exist. By default
// synchronous_commit = local avoids the wait. A transaction that sets it to on blocks in its COMMIT
// until the test ends the wait: it is durable, invisible to others, and has no answer.
const parkCommit = "set local synchronous_commit = on"

const commitIsParked = `select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'`

func requireGhostStandby(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var standbys string
	if err := pool.QueryRow(context.Background(), "show synchronous_standby_names").Scan(&standbys); err != nil {
		t.Fatal(err)
	}
	if standbys == "" {
		if os.Getenv("IDEM_TEST_REQUIRE") != "" {
			t.Fatal("IDEM_TEST_REQUIRE is set, but the server has no synchronous_standby_names")
		}
		t.Skip("the server has no synchronous_standby_names: `make test` starts one that has")
	}
}

// parked is a call whose COMMIT is blocked in this way.
type parked struct {
	*ledger
	watch  *watch
	result idem.Result
	done   chan error
}

func park(t *testing.T, ctx context.Context, opts ...idem.Option) *parked {
	t.Helper()
	p := &parked{ledger: newLedger(t), watch: newWatch(), done: make(chan error, 1)}
	requireGhostStandby(t, p.pool)
	go func() {
		var err error
		p.result, err = idemDo(ctx, p.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(context.Background(), parkCommit); err != nil {
				return idem.Response{}, err
			}
			return p.charge("k")(tx)
		}, append(opts, idem.WithObserver(p.watch))...)
		p.done <- err
	}()
	awaitTrue(t, p.pool, commitIsParked)
	return p
}

// signal calls a server function on the blocked backend.
func (p *parked) signal(t *testing.T, function string) {
	t.Helper()
	_, err := p.pool.Exec(context.Background(),
		"select "+function+"(pid) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'")
	if err != nil {
		t.Fatal(err)
	}
}

func (p *parked) wantCommitted(t *testing.T, events ...string) {
	t.Helper()
	if err := await(t, "the call", p.done); err != nil {
		t.Fatalf("the effect is committed, but err = %v", err)
	}
	if p.result.Replayed || p.runs.Load() != 1 {
		t.Errorf("Replayed = %v after %d runs of fn", p.result.Replayed, p.runs.Load())
	}
	if diff := cmp.Diff(events, p.watch.all()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	p.wantOnce("k")
	again, err := idemDo(context.Background(), p.pool, scope, "k", hashA, p.charge("k"))
	want := p.result
	want.Replayed = true
	if diff := cmp.Diff(want, again); err != nil || diff != "" {
		t.Errorf("replay: %v\n%s", err, diff)
	}
}

func TestSessionTerminatedDuringCommitIsResolvedAsCommitted(t *testing.T) {
	t.Parallel()
	p := park(t, context.Background())
	p.signal(t, "pg_terminate_backend")
	p.wantCommitted(t, "outcome_unknown", "resolved_committed", "executed")
}

func TestCancelDuringCommitIsACommit(t *testing.T) {
	t.Parallel()
	p := park(t, context.Background())
	p.signal(t, "pg_cancel_backend")
	p.wantCommitted(t, "executed")
}

func TestContextThatEndsDuringCommitDoesNotAbandonIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	p := park(t, ctx)
	cancel()
	// Postgres does not report that a backend is still waiting. So the answer below must be that of
	// the COMMIT.
	p.signal(t, "pg_cancel_backend")
	p.wantCommitted(t, "executed")
}

func TestKeyIsInProgressWhileItsCommitIsUnderWay(t *testing.T) {
	t.Parallel()
	p := park(t, context.Background())
	other := pgtest.Open(t, p.pool.Config().ConnString())
	_, err := idemDo(context.Background(), other, scope, "k", hashA, p.charge("k"), idem.WithWait(0))
	if !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v", err)
	}
	p.signal(t, "pg_cancel_backend")
	p.wantCommitted(t, "executed")
}

func TestOutcomeIsUnknownOnlyIfPostgresCannotBeReached(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	requireGhostStandby(t, l.pool)
	var unreachable atomic.Bool
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), func(config *pgxpool.Config) {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if unreachable.Load() { // for new connections and for the client's CancelRequest
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, addr)
		}
	})
	w := newWatch()
	done := make(chan error, 1)
	var conn net.Conn
	go func() {
		_, err := idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			conn = tx.Conn().PgConn().Conn()
			if _, err := tx.Exec(ctx, parkCommit); err != nil {
				return idem.Response{}, err
			}
			return l.charge("k")(tx)
		}, withLimits(limit, limit, 50*time.Millisecond), idem.WithObserver(w))
		done <- err
	}()
	awaitTrue(t, l.pool, commitIsParked)
	unreachable.Store(true)
	conn.Close()
	err := await(t, "the call", done)
	var unknown *idem.OutcomeUnknownError
	ok := errors.As(err, &unknown)
	if !ok || !errors.Is(err, idem.ErrOutcomeUnknown) || !idem.Retryable(err) {
		t.Fatalf("err = %v", err)
	}
	if !slices.Equal(w.all(), []string{"outcome_unknown", "unknown"}) {
		t.Errorf("events %v", w.all())
	}
	// While the old transaction is open, a retry that reaches the server finds the key in progress.
	// After that it gets the outcome.
	unreachable.Store(false)
	if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v", err)
	}
	if _, err := l.pool.Exec(ctx, "select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'"); err != nil {
		t.Fatal(err)
	}
	res, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"))
	if err != nil || !res.Replayed || res.ExecutionID != unknown.ExecutionID {
		t.Errorf("res = %+v, err = %v, want operation %s", res, err, unknown.ExecutionID)
	}
	l.wantOnce("k")
}

// Notice handlers run on the goroutine that reads the answer to COMMIT. If a handler ends that
// goroutine, as t.FailNow does, the call must still return. It then reads the record to learn the
// outcome.
func TestHandlerOfANoticeThatEndsItsGoroutineAtCommitStrandsNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := newLedger(t, func(config *pgxpool.Config) {
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			if notice.Message == "at commit" {
				runtime.Goexit()
			}
		}
	})
	_, err := l.pool.Exec(ctx, `create function note() returns trigger language plpgsql as 'begin raise notice ''at commit''; return null; end';
		create constraint trigger note after insert on ledger deferrable initially deferred for each row execute function note()`)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
		done <- err
	}()
	if err := await(t, "the call", done); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}
