package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// Open results keep the connection busy. The connection is closed, and nothing is committed.
func TestLeakedResultsAbortAndTheConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	returned := map[string]error{"": nil, ", with an error": errBusiness, ", with Reject": idem.Reject(ok)}
	for name, leak := range map[string]func(pgx.Tx){
		"rows":           func(tx pgx.Tx) { tx.Query(ctx, "select * from generate_series(1, 100000)") },
		"rows half read": func(tx pgx.Tx) { rows, _ := tx.Query(ctx, "select * from generate_series(1, 100000)"); rows.Next() },
		"row":            func(tx pgx.Tx) { tx.QueryRow(ctx, "select 1") },
		"batch":          func(tx pgx.Tx) { b := &pgx.Batch{}; b.Queue("select 1"); b.Queue("select 2"); tx.SendBatch(ctx, b) },
		"batch half read": func(tx pgx.Tx) {
			b := &pgx.Batch{}
			b.Queue("select 1")
			b.Queue("select 2")
			tx.SendBatch(ctx, b).Exec()
		},
		"rows in a savepoint": func(tx pgx.Tx) { sp, _ := tx.Begin(ctx); sp.Query(ctx, "select 1") },
	} {
		for how, end := range returned {
			key := name + how
			t.Run(key, func(t *testing.T) {
				made := l.pool.Stat().NewConnsCount()
				res, err := idemDo(ctx, l.pool, scope, key, hashA, oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
					resp, err := l.charge(key)(tx)
					leak(tx)
					return resp, errors.Join(err, end)
				}))
				switch {
				case end == nil:
					if !errors.Is(err, idem.ErrTxAborted) {
						t.Errorf("err = %v, want ErrTxAborted", err)
					}
				case errors.Is(end, errBusiness):
					if !errors.Is(err, errBusiness) {
						t.Errorf("err = %v, want fn's own", err)
					}
				default:
					if err != nil || !res.Rejected || l.entries(key) != 0 || l.records(key) != 1 {
						t.Errorf("%+v, %v, %d effects", res, err, l.entries(key))
					}
					return
				}
				l.wantNone(key)
				if l.pool.Stat().NewConnsCount() == made {
					t.Error("a busy connection was kept")
				}
				// The server releases the key when it notices that the connection is closed.
				if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithWait(limit)); err != nil {
					t.Error(err)
				}
				l.wantOnce(key)
			})
		}
	}
	l.wantHealthy()
}

// A goroutine that fn has started must neither commit part of its work nor reach the next user of
// the connection.
func TestTxInUseWhenFnReturnsCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn, maxConns(1)))
	observer := pgtest.Open(t, dsn)
	lock, err := observer.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if _, err := lock.Exec(ctx, "select pg_advisory_lock(42)"); err != nil {
		t.Fatal(err)
	}
	stray := make(chan error, 1)
	_, err = idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge("k")(tx)
		go func() {
			_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(42)")
			stray <- err
		}()
		awaitTrue(t, observer, "select count(*) = 1 from pg_locks where locktype = 'advisory' and not granted")
		return resp, err
	})
	if !errors.Is(err, idem.ErrTxAborted) {
		t.Errorf("err = %v, want ErrTxAborted", err)
	}
	if err := await(t, "the stray statement to end", stray); err == nil {
		t.Error("the stray statement succeeded on a connection that was given up")
	}
	if _, err := lock.Exec(ctx, "select pg_advisory_unlock(42)"); err != nil {
		t.Fatal(err)
	}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
	l.wantHealthy()
}

// lateArgument is an argument of a statement. It delays sending the statement until it is released.
type lateArgument struct{ begun, sent chan struct{} }

func newLateArgument() lateArgument { return lateArgument{make(chan struct{}), make(chan struct{})} }

func (a lateArgument) RewriteQuery(_ context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	close(a.begun)
	<-a.sent
	return sql, args, nil
}

// The goroutine is inside a method of tx when fn returns, but has sent nothing. The connection
// appears idle.
func TestTxInUseWhenFnReturnsNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
		l := newLedger(t, maxConns(1))
		late, stray := newLateArgument(), make(chan error, 1)
		idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			go func() {
				_, err := tx.Exec(ctx, "insert into ledger (key) values ('stray')", late)
				stray <- err
			}()
			await(t, "the stray statement to begin", late.begun)
			return ok, end
		})
		err := pgx.BeginFunc(ctx, l.pool, func(pgx.Tx) error { // the next user of the connection
			close(late.sent)
			if err := await(t, "the stray statement to end", stray); err == nil {
				t.Errorf("after %v: the stray statement was executed in another's transaction", end)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if n := l.entries("stray"); n != 0 {
			t.Errorf("after %v: %d stray effects were committed by somebody else", end, n)
		}
		l.wantHealthy()
	}
}

func TestConnectionThatFnClosesCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, lose := range map[string]func(pgx.Tx){
		"closed":     func(tx pgx.Tx) { tx.Conn().Close(ctx) },
		"terminated": func(tx pgx.Tx) { tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())") },
	} {
		_, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(name)(tx)
			lose(tx)
			return resp, err
		})
		if !errors.Is(err, idem.ErrTxAborted) {
			t.Errorf("%s: err = %v", name, err)
		}
		l.wantNone(name)
		if _, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit)); err != nil {
			t.Error(err)
		}
		l.wantOnce(name)
	}
	l.wantHealthy()
}
