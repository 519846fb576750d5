package promises_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

func TestDo_ContextEndingBeforeCommitRollsBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn   func(ctx context.Context, end func(), tx pgx.Tx) error
		lost bool // the connection is lost during a statement
	}{
		"before fn returns": {func(_ context.Context, end func(), _ pgx.Tx) error { end(); return nil }, false},
		"before a statement whose error is ignored": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			end()
			tx.Exec(ctx, "select 1")
			return nil
		}, false},
		"before Reject": {func(_ context.Context, end func(), _ pgx.Tx) error { end(); return idem.Reject(ok) }, false},
		"during a statement": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			time.AfterFunc(10*time.Millisecond, end)
			_, err := tx.Exec(ctx, "select pg_sleep(60)")
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			l.wantHealthy()
			ctx, end := context.WithCancel(context.Background())
			defer end()
			for range 2 { // the context of the second call has ended before it begins
				res, err := idemDo(ctx, l.pool, scope, "k", hashA, l.then("k", func(tx pgx.Tx) error { return test.fn(ctx, end, tx) }))
				if !errors.Is(err, context.Canceled) || idem.Retryable(err) {
					t.Errorf("err = %v, want context.Canceled", err)
				}
				wantSame(t, idem.Result{}, res)
			}
			l.wantNone("k")
			if !test.lost {
				l.wantSameConnections(1)
			}
			if _, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit)); err != nil || l.runs.Load() != 3 {
				t.Errorf("%v after %d runs", err, l.runs.Load())
			}
			l.wantOnce("k")
		})
	}
}

// These tests check what fn may do to its transaction. Most of them use a pool of one connection,
// so that the next call gets the connection that fn has used.

// serializationFailure makes idem rerun the transaction, unless fn has ended the transaction
// itself.
var serializationFailure = &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "could not serialize access"}

func TestDo_RefusesCommitAndRollbackOnTheTx(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":                func(tx pgx.Tx) error { tx.Commit(ctx); return nil },
		"commit, then an error": func(tx pgx.Tx) error { return errors.Join(tx.Commit(ctx), errBusiness) },
		"commit, then Reject":   func(tx pgx.Tx) error { tx.Commit(ctx); return idem.Reject(ok) },
		"deferred rollback":     func(tx pgx.Tx) error { defer tx.Rollback(ctx); return nil },
		"rollback returned":     func(tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		l.wantRefused(name, idem.ErrTxEnded, l.then(name, end))
	}
}

// rawEnds are SQL statements by which fn can end its transaction without the knowledge of idem, and
// what fn then returns.
var rawEnds = []struct {
	sql       []string
	returned  error
	committed bool // the writes of fn are
	after     bool // fn writes once more, which commits by itself
}{
	{sql: []string{"commit"}, committed: true},
	{sql: []string{"commit"}, returned: idem.Reject(ok), committed: true},
	{sql: []string{"select 1; end; select 2"}, returned: errBusiness, committed: true},
	{sql: []string{"commit; begin"}, committed: true},
	{sql: []string{"commit; begin"}, returned: serializationFailure, committed: true},
	{sql: []string{"commit; begin", "select 1/0"}, returned: errBusiness, committed: true}, // idem cannot query the next transaction, which is aborted
	{sql: []string{"commit and chain"}, returned: idem.Reject(ok), committed: true},
	{sql: []string{"savepoint s", "commit"}, committed: true},
	{sql: []string{"rollback"}},
	{sql: []string{"rollback"}, returned: serializationFailure},
	{sql: []string{"rollback; begin"}, returned: idem.Reject(ok)},
	{sql: []string{"rollback and chain"}, returned: errBusiness},
	{sql: []string{"rollback"}, after: true},
	{sql: []string{"rollback"}, returned: errBusiness, after: true},
	{sql: []string{"rollback"}, returned: serializationFailure, after: true},
	{sql: []string{"rollback"}, returned: idem.Reject(ok), after: true},
}

// An error must neither claim that the writes of fn were undone, nor that they have a stored
// response.
func TestDo_TransactionEndedBySQLIsNeverASuccess(t *testing.T) {
	t.Parallel()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			for _, end := range rawEnds {
				key := fmt.Sprintf("%q, returns %v, writes afterwards %t", end.sql, end.returned, end.after)
				runs := 0
				res, err := outer(ctx, l, key, func(tx pgx.Tx) (idem.Response, error) {
					runs++
					wantIs(t, errOf(l.charge(key)(tx)), nil)
					for _, sql := range end.sql {
						_, _ = tx.Exec(ctx, sql)
					}
					if end.after {
						execute(t, tx, "insert into ledger (key) values ('after')")
					}
					return ok, end.returned
				})
				if !errors.Is(err, idem.ErrTxEnded) || idem.Retryable(err) || runs != 1 {
					t.Errorf("%s: err = %v after %d runs, want ErrTxEnded", key, err, runs)
				}
				wantSame(t, idem.Result{}, res)
				if end.committed {
					l.wantRefusedUntilExpiry(key)
				} else {
					l.wantNone(key)
				}
			}
			l.wantStored("after", 4, 0)
			l.wantHealthy()
		})
	}
}

// wantRefusedUntilExpiry fails the test unless the effect of key is committed without a response,
// and a call for key returns ErrTxEnded.
func (l *ledger) wantRefusedUntilExpiry(key string) {
	l.t.Helper()
	before := l.runs.Load()
	res, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
	if !errors.Is(err, idem.ErrTxEnded) || idem.Retryable(err) || res.Body != nil {
		l.t.Errorf("the next call answers %+v, %v; want ErrTxEnded", res, err)
	}
	wantIs(l.t, errOf(idemDo(ctx, l.pool, scope, key, hashB, l.charge(key))), idem.ErrMismatch)
	wantIs(l.t, errOf(l.undone(key, hashA, l.charge(key))), idem.ErrInProgress)
	if l.runs.Load() != before {
		l.t.Error("fn was executed again")
	}
	l.wantOnce(key)
	l.expire(key)
	l.charged(ctx, key)
	l.wantStored(key, 2, 1)
}

func TestDo_IgnoredSQLErrorCommitsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, fail := range map[string]func(pgx.Tx){
		"exec":     func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0"); tx.Exec(ctx, "select 1") },
		"queryrow": func(tx pgx.Tx) { var n int; tx.QueryRow(ctx, "select 1/0").Scan(&n) },
		"query": func(tx pgx.Tx) {
			rows, _ := tx.Query(ctx, "select 1/(3-n) from generate_series(1, 5) n")
			for rows.Next() {
			}
		},
		"batch": func(tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue("select 1/0")
			batch.Queue("insert into ledger (key) values ('batch')")
			tx.SendBatch(ctx, batch).Close()
		},
		"copy": func(tx pgx.Tx) {
			tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{nil}}))
		},
		"in a savepoint":  func(tx pgx.Tx) { must(tx.Begin(ctx)).Exec(ctx, "select 1/0") },
		"duplicate claim": func(tx pgx.Tx) { tx.Exec(ctx, "insert into idem.records select * from idem.records") },
	} {
		l.wantRefused(name, idem.ErrTxAborted, l.then(name, func(tx pgx.Tx) error { fail(tx); return nil }))
	}
}

// A constraint that is checked at COMMIT fails like a statement of fn: the call returns the
// server's error, and nothing is committed.
func TestDo_ErrorAtCommitIsTheServersOwn(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		execute(t, l.pool, "create table uniq (n int unique deferrable initially deferred)")
		execute(t, l.pool, "create function fail() returns trigger language plpgsql as 'begin raise exception using errcode = new.code; end'")
		execute(t, l.pool, "create table raise (code text)")
		execute(t, l.pool, "create constraint trigger late after insert on raise deferrable initially deferred for each row execute function fail()")
		for code, sql := range map[string]string{
			"23505": "insert into uniq values (7), (7)",
			"42P01": "insert into raise values ('42P01')", // missing table
			"42501": "insert into raise values ('42501')", // privilege
			"25006": "insert into raise values ('25006')", // read-only
			"25P01": "insert into raise values ('25P01')", // no transaction
		} {
			made, runs := l.pool.Stat().NewConnsCount(), 0
			res, err := idemDo(ctx, l.pool, scope, code, hashA, l.then(code, func(tx pgx.Tx) error {
				runs++
				execute(t, tx, sql)
				return nil
			}))
			pgErr, isPg := err.(*pgconn.PgError)
			if !isPg || pgErr.Code != code || errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("%s: err = %v, want that of the server", code, err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" || runs != 1 {
				t.Errorf("%s: %d runs\n%s", code, runs, diff)
			}
			l.wantNone(code)
			l.wantSameConnections(made)
			l.wantFree(code)
		}
	}, maxConns(1))
}

// Open results keep the connection busy. The connection is closed, and nothing is committed.
func TestDo_OpenResultsAbortAndCostTheConnection(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	batch := func(tx pgx.Tx) pgx.BatchResults {
		b := &pgx.Batch{}
		b.Queue("select 1")
		b.Queue("select 2")
		return tx.SendBatch(ctx, b)
	}
	for name, leak := range map[string]func(pgx.Tx){
		"rows half read":      func(tx pgx.Tx) { rows, _ := tx.Query(ctx, "select * from generate_series(1, 100000)"); rows.Next() },
		"row":                 func(tx pgx.Tx) { tx.QueryRow(ctx, "select 1") },
		"batch half read":     func(tx pgx.Tx) { batch(tx).Exec() },
		"rows in a savepoint": func(tx pgx.Tx) { must(tx.Begin(ctx)).Query(ctx, "select 1") },
	} {
		for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
			key := fmt.Sprint(name, ", returns ", end)
			made := l.pool.Stat().NewConnsCount()
			res, err := idemDo(ctx, l.pool, scope, key, hashA, oneRun(t, l.then(key, func(tx pgx.Tx) error { leak(tx); return end })))
			switch {
			case end == nil && !errors.Is(err, idem.ErrTxAborted), end == errBusiness && !errors.Is(err, errBusiness):
				t.Errorf("%s: err = %v", key, err)
			case end != nil && end != errBusiness:
				if err != nil || !res.Rejected || l.entries(key) != 0 || l.records(key) != 1 {
					t.Errorf("%s: %+v, %v, %d effects", key, res, err, l.entries(key))
				}
				continue
			}
			l.wantNone(key)
			if l.pool.Stat().NewConnsCount() == made {
				t.Errorf("%s: a busy connection was kept", key)
			}
			// The server releases the key when it notices that the connection is closed.
			l.wantFreeSoon(l.pool, key)
		}
	}
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

// When fn returns, a goroutine that it has started is executing a statement.
func TestDo_TxInUseWhenFnReturnsCommitsNothing(t *testing.T) {
	t.Parallel()
	straysInto(t, true, nil)
}

// When fn returns, a goroutine that it has started is inside a method of tx and has sent nothing, so
// that the connection appears idle. Package database/sql waits for such a goroutine.
func TestDo_TxInUseNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	straysInto(t, false, nil, errBusiness, idem.Reject(ok))
}

// straysInto checks that a goroutine that uses tx when fn returns neither commits part of its work nor
// reaches the next user of the connection. sent says whether its statement is sent before.
func straysInto(t *testing.T, sent bool, ends ...error) {
	for _, end := range ends {
		l := newLedger(t, maxConns(1))
		observer := ledgerOn(t, l.process())
		lock, late := observer.begin(ctx), newLateArgument()
		execute(t, lock, "select pg_advisory_xact_lock(42)")
		var stray <-chan error
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.then("k", func(tx pgx.Tx) error {
			stray = inBackground(func() error {
				return errOf(tx.Exec(ctx, "insert into ledger (key) select 'stray' from pg_advisory_xact_lock(42)", late))
			})
			await(t, "the stray statement to begin", late.begun)
			if sent {
				close(late.sent)
				awaitBlocked(t, observer.pool, 1)
			}
			return end
		}))
		if sent {
			wantIs(t, err, idem.ErrTxAborted)
		}
		noError(t, pgx.BeginFunc(ctx, l.pool, func(pgx.Tx) error { // the next user of the connection
			if !sent {
				close(late.sent)
			}
			if err := await(t, "the stray statement to end", stray); err == nil {
				t.Errorf("sent %t, %v: the stray statement was executed", sent, end)
			}
			return nil
		}))
		noError(t, lock.Rollback(ctx))
		l.wantNone("stray")
		if end == nil || end == errBusiness {
			l.wantFreeSoon(l.pool, "k")
		}
		l.wantHealthy()
	}
}

func TestDo_ConnectionClosedByFnCommitsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, lose := range map[string]func(pgx.Tx){
		"closed":     func(tx pgx.Tx) { tx.Conn().Close(ctx) },
		"terminated": func(tx pgx.Tx) { tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())") },
	} {
		for _, end := range []error{nil, errBusiness} {
			key := fmt.Sprint(name, ", returns ", end)
			_, err := idemDo(ctx, l.pool, scope, key, hashA, l.then(key, func(tx pgx.Tx) error { lose(tx); return end }))
			if end == nil && !errors.Is(err, idem.ErrTxAborted) || end != nil && !errors.Is(err, end) {
				t.Errorf("%s: err = %v", key, err)
			}
			l.wantNone(key)
			l.wantFreeSoon(l.pool, key)
		}
	}
	l.wantHealthy()
}

// endings are ways in which fn ends without returning.
var endings = map[string]func(pgx.Tx){
	"panic":           func(pgx.Tx) { panic(errBusiness) },
	"Goexit":          func(pgx.Tx) { runtime.Goexit() },
	"panic with rows": func(tx pgx.Tx) { tx.Query(context.Background(), "select 1"); panic(errBusiness) },
	"panic in a savepoint": func(tx pgx.Tx) {
		pgx.BeginFunc(context.Background(), tx, func(pgx.Tx) error { panic(errBusiness) })
	},
	"panic after an SQL error": func(tx pgx.Tx) { tx.Exec(context.Background(), "select 1/0"); panic(errBusiness) },
	"panic after raw rollback": func(tx pgx.Tx) { tx.Exec(context.Background(), "rollback"); panic(errBusiness) },
}

func TestDo_PanicAndGoexitRollBackAndGoOn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			var kept pgx.Tx
			recovered, returned := escape(t, func() {
				idemDo(ctx, l.pool, scope, name, hashA, l.then(name, func(tx pgx.Tx) error {
					kept = tx
					end(tx)
					return nil
				}))
			})
			if panicked := strings.HasPrefix(name, "panic"); returned || panicked && recovered != errBusiness || !panicked && recovered != nil {
				t.Errorf("recovered %v, returned %t", recovered, returned)
			}
			l.wantNone(name)
			waitIdle(t, l.pool)
			wantIs(t, errOf(kept.Exec(ctx, "select 1")), pgx.ErrTxClosed, "the kept tx")
			l.wantFreeSoon(l.pool, name)
		})
	}
	l.wantHealthy()
}

// A fn may delete or move its record, or a trigger may drop it. Such a call is no success.
func TestDo_FnThatChangesItsRecordCommitsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, sql := range map[string]string{
		"delete":          "delete from idem.records",
		"truncate":        "truncate idem.records",
		"other execution": "update idem.records set execution_id = gen_random_uuid()",
		"other key":       "update idem.records set key = 'other'",
		"other scope":     "update idem.records set scope = 'other'",
	} {
		for outerName, outer := range outers {
			made, key := l.pool.Stat().NewConnsCount(), outerName+", "+name
			_, err := outer(ctx, l, key, l.then(key, func(tx pgx.Tx) error { execute(t, tx, sql); return nil }))
			wantIs(t, err, idem.ErrTxEnded, key)
			l.wantNone(key)
			l.wantCount(key+": records", 0, "select count(*) from idem.records")
			l.wantSameConnections(made)
		}
	}
}

func TestDo_SavepointsWorkInsideFn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, test := range map[string]struct {
		fn   func(tx, outer, inner pgx.Tx) error
		want []string
	}{
		"inner rolled back, outer committed": {func(tx, outer, inner pgx.Tx) error {
			return errors.Join(note(ctx, inner, "inner"), inner.Rollback(ctx), note(ctx, outer, "outer"), outer.Commit(ctx))
		}, []string{"outer"}},
		"inner committed, outer rolled back": {func(tx, outer, inner pgx.Tx) error {
			return errors.Join(note(ctx, inner, "inner"), inner.Commit(ctx), outer.Rollback(ctx), note(ctx, tx, "after"))
		}, []string{"after"}},
		"an SQL error is survived": {func(tx, outer, inner pgx.Tx) error {
			_, _ = inner.Exec(ctx, "select 1/0")
			return errors.Join(outer.Rollback(ctx), note(ctx, tx, "after"))
		}, []string{"after"}},
		"left open": {func(tx, outer, inner pgx.Tx) error { return note(ctx, inner, "inner") }, []string{"inner"}},
		"used after it was closed": {func(tx, outer, inner pgx.Tx) error {
			if err := errors.Join(inner.Commit(ctx), note(ctx, inner, "no")); !errors.Is(err, pgx.ErrTxClosed) {
				t.Error(err)
			}
			return nil
		}, nil},
	} {
		execute(t, l.pool, "truncate ledger")
		_, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			outer := must(tx.Begin(ctx))
			return ok, test.fn(tx, outer, must(outer.Begin(ctx)))
		})
		wantIs(t, err, nil, name)
		l.wantCommitted(test.want...)
	}
}

// txMethods has one use for each method of pgx.Tx that would have a visible effect. A method
// without an error result is used through its result.
var txMethods = map[string]func(context.Context, pgx.Tx) error{
	"Begin":    func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
	"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{"kept"}}))
		return err
	},
	"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("insert into ledger (key) values ('kept')")
		return tx.SendBatch(ctx, batch).Close()
	},
	"LargeObjects": func(ctx context.Context, tx pgx.Tx) error {
		objects := tx.LargeObjects()
		_, err := objects.Create(ctx, 0)
		return err
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "kept", "select 1"); return err },
	"Exec": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into ledger (key) values ('kept')")
		return err
	},
	"Query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "insert into ledger (key) values ('kept') returning id")
		for rows.Next() {
			err = errors.New("Query returned a row")
		}
		return errors.Join(err, rows.Err())
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
		var id int64
		return tx.QueryRow(ctx, "insert into ledger (key) values ('kept') returning id").Scan(&id)
	},
	"Conn": func(_ context.Context, tx pgx.Tx) error {
		if conn := tx.Conn(); conn != nil {
			return errors.New("Conn returned the connection")
		}
		return pgx.ErrTxClosed
	},
}

// pgx adds methods to Tx in minor releases. A method that is not in the table would bypass the
// guard.
func TestTx_EveryMethodIsGuarded(t *testing.T) {
	t.Parallel()
	for method := range reflect.TypeFor[pgx.Tx]().Methods() {
		if txMethods[method.Name] == nil {
			t.Errorf("pgx.Tx has a method %s without a test: guard it in guard.go, and add it here", method.Name)
		}
	}
}

// kept are the transactions that fn has got, by name.
type kept map[string]pgx.Tx

// keep returns a fn that keeps its tx, open and closed savepoints, and their savepoints.
func (k kept) keep(ctx context.Context, t *testing.T, end error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		k["tx"] = tx
		for _, sp := range []struct{ name, of string }{
			{"savepoint", "tx"}, {"nested savepoint", "savepoint"}, {"committed savepoint", "nested savepoint"}, {"undone savepoint", "nested savepoint"},
		} {
			var err error
			if k[sp.name], err = k[sp.of].Begin(ctx); err != nil {
				t.Error(err)
			}
		}
		wantIs(t, errors.Join(k["undone savepoint"].Rollback(ctx), k["committed savepoint"].Commit(ctx)), nil)
		return ok, end
	}
}

// wantDead fails the test unless every use of the kept transactions returns pgx.ErrTxClosed.
func (k kept) wantDead(ctx context.Context, t *testing.T) {
	t.Helper()
	for name, tx := range k {
		for method, use := range txMethods {
			wantIs(t, use(ctx, tx), pgx.ErrTxClosed, name, method)
		}
	}
}

func TestTx_IsDeadAfterFnAndNeverReachesTheNextUser(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for i, end := range []error{nil, errBusiness, idem.Reject(ok)} {
		k := kept{}
		idemDo(ctx, l.pool, scope, fmt.Sprint(i), hashA, k.keep(ctx, t, end))
		waitIdle(t, l.pool)
		k.wantDead(ctx, t) // the connection is idle
		err := pgx.BeginFunc(ctx, l.pool, func(next pgx.Tx) error {
			k.wantDead(ctx, t) // another transaction uses the connection
			joined := kept{}
			idem.DoTx(ctx, next, scope, fmt.Sprint(i, " joined"), hashA, joined.keep(ctx, t, end))
			joined.wantDead(ctx, t)
			return note(ctx, next, "next")
		})
		if err != nil || l.entries("next") != i+1 || l.entries("kept") != 0 {
			t.Errorf("after %v: %v, %d effects of the next user, %d through the kept tx", end, err, l.entries("next"), l.entries("kept"))
		}
		l.wantSameConnections(1)
	}
}

// Row-level security usually depends on the role of the transaction. The role pg_monitor exists on
// every server and has no rights in the schema idem.
func TestDo_FnThatChangesTheRoleMustResetIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	execute(t, l.pool, "grant insert, select on ledger to pg_monitor")
	for name, outer := range outers {
		for afterwards, refused := range map[string]bool{"select 1": true, "reset role": false} {
			key := name + ", " + afterwards
			_, err := outer(ctx, l, key, func(tx pgx.Tx) (idem.Response, error) {
				execute(t, tx, "set local role pg_monitor")
				resp, err := l.charge(key)(tx)
				execute(t, tx, afterwards)
				return resp, err
			})
			if !refused {
				wantIs(t, err, nil, key)
				l.wantOnce(key)
				continue
			}
			if !txn.HasCode(err, "42501") || !containsAll(err.Error(), "SET LOCAL ROLE", "RESET ROLE") {
				t.Errorf("%s: err = %v", key, err)
			}
			l.wantNone(key)
		}
	}
}

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// A SET ROLE of fn that is committed outlives the transaction. The next call that is denied by that
// role costs the connection. Any other denied statement does not.
func TestDo_RoleThatOutlivesFnCostsTheConnection(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	pool := l.process(maxConns(1))
	for _, role := range []string{"set local role pg_monitor", "set role pg_monitor; commit; begin"} {
		_, err := idemDo(ctx, pool, scope, "denied", hashA, func(tx pgx.Tx) (idem.Response, error) {
			execute(t, tx, role)
			return ok, note(ctx, tx, "denied")
		})
		if n := pool.Stat().NewConnsCount(); !txn.HasCode(err, "42501") || n != 1 {
			t.Fatalf("%s: %v, %d connections", role, err, n)
		}
	}
	if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k")); err != nil || pool.Stat().NewConnsCount() != 2 {
		t.Errorf("%v, %d connections; want a second one", err, pool.Stat().NewConnsCount())
	}
}

// A fn that was too slow for the server would be too slow again, so it is not rerun.
func TestDo_FnThatOutlastsAServerTimeoutRunsOnce(t *testing.T) {
	t.Parallel()
	for name, afterwards := range map[string]func(tx pgx.Tx) error{
		"COMMIT finds it out":            func(pgx.Tx) error { return nil },
		"a statement of fn finds it out": func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err },
		"fn ignores what it finds out":   func(tx pgx.Tx) error { tx.Exec(ctx, "select 1"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			pool := l.process()
			_, err := idemDo(ctx, pool, scope, "k", hashA, l.then("k", func(tx pgx.Tx) error {
				pid := tx.Conn().PgConn().PID()
				execute(t, tx, "set local idle_in_transaction_session_timeout = '10ms'")
				awaitTrue(t, l.pool, fmt.Sprintf("select count(*) = 0 from pg_stat_activity where pid = %d", pid))
				return afterwards(tx)
			}))
			if err == nil || idem.Retryable(err) || errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("err = %v", err)
			}
			if strings.HasPrefix(name, "COMMIT") && (!errors.Is(err, idem.ErrTxAborted) || !strings.Contains(err.Error(), "idle_in_transaction_session_timeout")) {
				t.Errorf("the reason is missing: %v", err)
			}
			if n := l.runs.Load(); n != 1 {
				t.Errorf("fn ran %d times", n)
			}
			l.wantNone("k")
		})
	}
}

// Postgres reports no error when a trigger skips a row. A call without a record must not succeed,
// because the next caller would not find the record.
func TestDo_TriggerThatSkipsTheRecordIsNoSuccess(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]string{
		"before update": "before update on idem.records for each row",
		"before insert": "before insert on idem.records for each row when (new.state <> 'processing')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			execute(t, l.pool, "create function nothing() returns trigger language plpgsql as 'begin return null; end'")
			execute(t, l.pool, "create trigger nothing "+when+" execute function nothing()")
			for outerName, outer := range outers {
				if res, err := outer(context.Background(), l, outerName, l.charge(outerName)); !errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("%s: %+v, %v", outerName, res, err)
				}
				if outerName != "Do" { // everything that Do wrote is committed
					l.wantNone(outerName)
				}
			}
		})
	}
}
