package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

// What fn may and may not do. Most tests here use a pool of one connection: whatever fn did to it is then done to the call
// that comes next.

// serializationFailure is an error that would make the transaction be run again, had fn not ended it.
var serializationFailure = &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "could not serialize access"}

// ok is a response like any other.
var ok = idem.Response{Status: 201, Body: []byte("ok")}

// wantFree fails the test unless a call for key executes at once, and leaves one effect and one record.
func (l *ledger) wantFree(key string) {
	l.t.Helper()
	before := l.runs.Load()
	res, err := idem.Do(context.Background(), l.pool, scope, key, hashB, l.charge(key), idem.WithWait(0))
	if err != nil || res.Replayed || l.runs.Load() != before+1 {
		l.t.Errorf("key %q is not free: %+v, %v", key, res, err)
		return
	}
	l.wantOnce(key)
}

// wantHealthy fails the test unless every connection is back and the pool serves a call.
func (l *ledger) wantHealthy() {
	l.t.Helper()
	waitIdle(l.t, l.pool)
	l.wantFree(fmt.Sprintf("healthy %d", l.runs.Load()))
	waitIdle(l.t, l.pool)
}

// wantSameConnections fails the test if the pool had to replace a connection since it had made n.
func (l *ledger) wantSameConnections(n int64) {
	l.t.Helper()
	if made := l.pool.Stat().NewConnsCount(); made != n {
		l.t.Errorf("the pool made %d connections, want %d: a sound one was thrown away", made, n)
	}
}

func TestCommitAndRollbackOnTheTxAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":                 func(tx pgx.Tx) error { tx.Commit(ctx); return nil },
		"commit, error returned": func(tx pgx.Tx) error { return tx.Commit(ctx) },
		"commit, then an error":  func(tx pgx.Tx) error { return errors.Join(tx.Commit(ctx), errBusiness) },
		"commit, then Reject":    func(tx pgx.Tx) error { tx.Commit(ctx); return idem.Reject(ok) },
		"rollback":               func(tx pgx.Tx) error { tx.Rollback(ctx); return nil },
		"rollback returned":      func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		"deferred rollback":      func(tx pgx.Tx) error { defer tx.Rollback(ctx); return nil },
		"rollback, then Reject":  func(tx pgx.Tx) error { tx.Rollback(ctx); return idem.Reject(ok) },
		"both, many times": func(tx pgx.Tx) error {
			for range 3 {
				if err := errors.Join(tx.Commit(ctx), tx.Rollback(ctx)); !errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("the refusal is %v", err)
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := l.pool.Stat().NewConnsCount()
			res, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge(name)(tx)
				return resp, errors.Join(err, end(tx))
			})
			if !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("err = %v, want ErrTxEnded", err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" {
				t.Error(diff)
			}
			l.wantNone(name)
			l.wantSameConnections(made)
			l.wantFree(name)
		})
	}
}

func TestRefusedCommitLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		tx.Commit(ctx)
		var mine int
		if err := tx.QueryRow(ctx, "select count(*) from ledger").Scan(&mine); err != nil || mine != 1 {
			t.Errorf("after the refusal fn sees %d entries, %v", mine, err)
		}
		if others := l.entries("k"); others != 0 {
			t.Errorf("after the refusal others see %d entries", others)
		}
		return ok, nil
	})
	if !errors.Is(err, idem.ErrTxEnded) {
		t.Error(err)
	}
	l.wantNone("k")
}

// rawEnds are statements by which fn can end its transaction behind idem's back, and whether they keep what it did.
var rawEnds = []struct {
	name      string
	sql       []string
	committed bool
}{
	{"commit", []string{"commit"}, true},
	{"end", []string{"end"}, true},
	{"commit with others", []string{"select 1; commit; select 2"}, true},
	{"commit and begin", []string{"commit; begin"}, true},
	{"commit, begin", []string{"commit", "begin"}, true},
	{"commit and chain", []string{"commit and chain"}, true},
	{"commit under a savepoint", []string{"savepoint s", "commit"}, true},
	{"rollback", []string{"rollback"}, false},
	{"abort", []string{"abort"}, false},
	{"rollback and begin", []string{"rollback; begin"}, false},
	{"rollback and chain", []string{"rollback and chain"}, false},
}

// What fn returns after it has ended its transaction by a statement.
var returnsAfterEnd = []struct {
	name string
	err  error
}{
	{"nothing", nil},
	{"an error", errBusiness},
	{"a serialization failure", serializationFailure},
	{"Reject", idem.Reject(ok)},
}

func TestEndingTheTransactionBySQLIsNeverASuccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, end := range rawEnds {
		for _, returned := range returnsAfterEnd {
			name := end.name + ", returns " + returned.name
			t.Run(name, func(t *testing.T) {
				runs := 0
				res, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					runs++
					if _, err := l.charge(name)(tx); err != nil {
						t.Error(err)
					}
					for _, sql := range end.sql {
						if _, err := tx.Exec(ctx, sql); err != nil {
							t.Error(err)
						}
					}
					return ok, returned.err
				})
				if !errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("err = %v, want ErrTxEnded", err)
				}
				if idem.Retryable(err) {
					t.Errorf("%v is retryable", err)
				}
				if diff := cmp.Diff(idem.Result{}, res); diff != "" {
					t.Error(diff)
				}
				if runs != 1 {
					t.Errorf("fn ran %d times", runs)
				}
				if !end.committed {
					l.wantNone(name)
					l.wantFree(name)
					return
				}
				l.wantRefusedUntilExpiry(name)
			})
		}
	}
}

// wantRefusedUntilExpiry fails the test unless the effect of key is committed without a response, and the key says so.
func (l *ledger) wantRefusedUntilExpiry(key string) {
	l.t.Helper()
	ctx := context.Background()
	before := l.runs.Load()
	for range 2 {
		res, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key))
		if !errors.Is(err, idem.ErrTxEnded) || idem.Retryable(err) || res.Body != nil {
			l.t.Errorf("the next call answers %+v, %v; want ErrTxEnded", res, err)
		}
		if _, err := idem.Do(ctx, l.pool, scope, key, hashB, l.charge(key)); !errors.Is(err, idem.ErrMismatch) {
			l.t.Errorf("the next call with another hash answers %v", err)
		}
	}
	if l.runs.Load() != before {
		l.t.Error("fn was executed again")
	}
	l.wantOnce(key)
	l.expire(key)
	res, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key))
	if err != nil || res.Replayed {
		l.t.Errorf("once expired, the key answers %+v, %v", res, err)
	}
	if l.entries(key) != 2 {
		l.t.Errorf("%d effects", l.entries(key))
	}
}

// expire lets the record's time run out.
func (l *ledger) expire(key string) {
	l.t.Helper()
	tag, err := l.pool.Exec(context.Background(),
		"update idem.records set expires_at = clock_timestamp() where scope = $1 and key = $2", scope, key)
	if err != nil || tag.RowsAffected() != 1 {
		l.t.Fatalf("expire %q: %v, %v", key, tag, err)
	}
}

// After a rollback of its own, a statement of fn is a transaction of its own. No answer may then claim that fn's writes
// were undone, and none that they came with a response.
func TestWritesAfterARollbackBySQLAreReportedNotHidden(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, begin := range []string{"", "begin"} {
		for _, returned := range returnsAfterEnd {
			name := begin + " returns " + returned.name
			t.Run(name, func(t *testing.T) {
				runs := 0
				_, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					runs++
					if _, err := tx.Exec(ctx, "rollback"); err != nil {
						t.Error(err)
					}
					if _, err := l.charge(name)(tx); err != nil {
						t.Error(err)
					}
					if _, err := tx.Exec(ctx, begin); err != nil {
						t.Error(err)
					}
					return ok, returned.err
				})
				if !errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("err = %v, want ErrTxEnded", err)
				}
				if n := l.entries(name); runs != 1 || n != 1 || l.records(name) != 0 {
					t.Errorf("%d runs, %d effects, %d records", runs, n, l.records(name))
				}
			})
		}
	}
}

// An error in the transaction that fn began instead keeps idem from asking it whose it is.
func TestEndingTheTransactionBySQLIsFoundOutEvenIfTheNextOneIsAborted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		if _, err := tx.Exec(ctx, "commit; begin"); err != nil {
			t.Error(err)
		}
		_, err := tx.Exec(ctx, "select 1/0")
		return ok, err
	})
	if !errors.Is(err, idem.ErrTxEnded) {
		t.Errorf("err = %v, want ErrTxEnded: an effect is committed", err)
	}
	l.wantRefusedUntilExpiry("k")
}

// Whatever idem asks the server when fn fails must not take the place of fn's own answer if the server cannot say.
func TestFailureOfFnIsItsOwnEvenIfTheServerCannotBeAskedAnyMore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, other := ledgerOn(t, pgtest.Open(t, dsn, maxConns(1))), pgtest.Open(t, dsn)
	role := "idem_none_" + l.pool.Config().ConnConfig.Database
	role = role[:min(len(role), 63)]
	if _, err := other.Exec(ctx, "create role "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Exec(context.Background(), "drop role "+role) })
	for name, spoil := range map[string]func(pgx.Tx) error{
		"role without privileges": func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "set local role "+role); return err },
		"session terminated": func(tx pgx.Tx) error {
			_, err := other.Exec(ctx, "select pg_terminate_backend($1, 30000)", int32(tx.Conn().PgConn().PID()))
			return err
		},
		"session terminated unnoticed, in a savepoint": func(tx pgx.Tx) error {
			if _, err := tx.Begin(ctx); err != nil {
				return err
			}
			_, err := other.Exec(ctx, "select pg_terminate_backend($1, 30000)", int32(tx.Conn().PgConn().PID()))
			return err
		},
	} {
		for how, end := range map[string]error{" and error": errBusiness, " and Reject": idem.Reject(ok)} {
			key := name + how
			res, err := idem.Do(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
				if _, err := l.charge(key)(tx); err != nil {
					t.Error(err)
				}
				if err := spoil(tx); err != nil {
					t.Error(err)
				}
				return ok, end
			})
			if end == errBusiness {
				if err != errBusiness {
					t.Errorf("%s: err = %v, want fn's own", key, err)
				}
				l.wantNone(key)
				l.wantFree(key)
				continue
			}
			if err != nil || !res.Rejected || l.entries(key) != 0 || l.records(key) != 1 {
				t.Errorf("%s: %+v, %v, %d effects, %d records", key, res, err, l.entries(key), l.records(key))
			}
		}
	}
	l.wantHealthy()
}

// The statement needs max_prepared_transactions. Where that is 0 it fails, and that is an error which fn ignores.
func TestPrepareTransactionIsNeverASuccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		tx.Exec(ctx, "prepare transaction 'idem'")
		return ok, nil
	})
	if !errors.Is(err, idem.ErrTxEnded) && !errors.Is(err, idem.ErrTxAborted) {
		t.Errorf("err = %v", err)
	}
	l.pool.Exec(ctx, "rollback prepared 'idem'")
	l.wantFree("k")
}

func TestIgnoredSQLErrorCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, fail := range map[string]func(pgx.Tx){
		"exec":     func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0") },
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
		"and more statements": func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0"); tx.Exec(ctx, "select 1") },
		"duplicate claim": func(tx pgx.Tx) {
			tx.Exec(ctx, "insert into idem.records select * from idem.records")
		},
		"parse error": func(tx pgx.Tx) { tx.Exec(ctx, "selekt") },
	} {
		t.Run(name, func(t *testing.T) {
			made := l.pool.Stat().NewConnsCount()
			res, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge(name)(tx)
				fail(tx)
				return resp, err
			})
			if !errors.Is(err, idem.ErrTxAborted) || idem.Retryable(err) {
				t.Errorf("err = %v, want ErrTxAborted", err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" {
				t.Error(diff)
			}
			l.wantNone(name)
			l.wantSameConnections(made)
			l.wantFree(name)
		})
	}
}

// A constraint that says no is a reason to reject: the failed statement is undone like the rest.
func TestRejectAfterASQLErrorIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	fn := func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		_, err := tx.Exec(ctx, "insert into ledger (key) values (null)")
		if err == nil {
			t.Error("the statement did not fail")
		}
		return idem.Response{}, fmt.Errorf("declined because of %v: %w", err, idem.Reject(ok))
	}
	first, err := idem.Do(ctx, l.pool, scope, "k", hashA, fn)
	if err != nil || !first.Rejected || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	if diff := cmp.Diff(ok, first.Response); diff != "" {
		t.Error(diff)
	}
	second, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	first.Replayed = true
	if diff := cmp.Diff(first, second); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if l.entries("k") != 0 {
		t.Error("the rejected effect is committed")
	}
}

func TestSQLErrorReturnedByFnReachesTheCallerAsItIs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	var own error
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, own = tx.Exec(ctx, "insert into idem.records select * from idem.records")
		return ok, own
	})
	if err != own {
		t.Errorf("err = %v, want fn's own %v", err, own)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" {
		t.Errorf("err = %v", err)
	}
	l.wantFree("k")
}

func TestSavepointsWorkInsideFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	insert := func(tx pgx.Tx, what string) error {
		_, err := tx.Exec(ctx, "insert into ledger (key) values ($1)", what)
		return err
	}
	begin := func(tx pgx.Tx) pgx.Tx {
		nested, err := tx.Begin(ctx)
		if err != nil {
			t.Error(err)
		}
		return nested
	}
	for name, test := range map[string]struct {
		fn   func(pgx.Tx) error
		want []string
	}{
		"committed":   {func(tx pgx.Tx) error { sp := begin(tx); return errors.Join(insert(sp, "a"), sp.Commit(ctx)) }, []string{"a"}},
		"rolled back": {func(tx pgx.Tx) error { sp := begin(tx); return errors.Join(insert(sp, "a"), sp.Rollback(ctx)) }, nil},
		"inner rolled back, outer committed": {func(tx pgx.Tx) error {
			outer := begin(tx)
			err := insert(outer, "outer")
			inner := begin(outer)
			return errors.Join(err, insert(inner, "inner"), inner.Rollback(ctx), insert(outer, "after"), outer.Commit(ctx))
		}, []string{"outer", "after"}},
		"inner committed, outer rolled back": {func(tx pgx.Tx) error {
			outer := begin(tx)
			inner := begin(outer)
			return errors.Join(insert(inner, "inner"), inner.Commit(ctx), outer.Rollback(ctx), insert(tx, "after"))
		}, []string{"after"}},
		"BeginFunc": {func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				return pgx.BeginFunc(ctx, sp, func(sp pgx.Tx) error { return insert(sp, "a") })
			})
		}, []string{"a"}},
		"BeginFunc that fails": {func(tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return errors.Join(insert(sp, "a"), errBusiness) })
			if !errors.Is(err, errBusiness) {
				t.Error(err)
			}
			return insert(tx, "b")
		}, []string{"b"}},
		"a SQL error is survived": {func(tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				_, err := sp.Exec(ctx, "select 1/0")
				return err
			})
			if err == nil {
				t.Error("no error")
			}
			return insert(tx, "b")
		}, []string{"b"}},
		"left open": {func(tx pgx.Tx) error { return insert(begin(tx), "a") }, []string{"a"}},
		"raw": {func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "savepoint s; insert into ledger (key) values ('a'); release s")
			return err
		}, []string{"a"}},
		"closed twice": {func(tx pgx.Tx) error {
			sp := begin(tx)
			defer sp.Rollback(ctx)
			return errors.Join(insert(sp, "a"), sp.Commit(ctx))
		}, []string{"a"}},
		"used after it was closed": {func(tx pgx.Tx) error {
			sp := begin(tx)
			if err := sp.Commit(ctx); err != nil {
				t.Error(err)
			}
			if err := insert(sp, "no"); !errors.Is(err, pgx.ErrTxClosed) {
				t.Error(err)
			}
			return nil
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := l.pool.Exec(ctx, "truncate ledger"); err != nil {
				t.Fatal(err)
			}
			res, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) { return ok, test.fn(tx) })
			if err != nil || res.Replayed {
				t.Fatalf("%+v, %v", res, err)
			}
			rows, _ := l.pool.Query(ctx, "select key from ledger order by id")
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("committed %q, want %q (%v)", got, test.want, err)
			}
			if again, err := idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name)); err != nil || !again.Replayed {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
}

func TestSavepointInAnIgnoredErrorCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge("k")(tx)
		if err != nil {
			return resp, err
		}
		sp, err := tx.Begin(ctx)
		if err != nil {
			return resp, err
		}
		sp.Exec(ctx, "select 1/0")
		return resp, nil
	})
	if !errors.Is(err, idem.ErrTxAborted) {
		t.Errorf("err = %v", err)
	}
	l.wantNone("k")
	l.wantFree("k")
}

// What fn leaves open keeps the connection busy: it is closed, and the effect with it.
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
				res, err := idem.Do(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
					resp, err := l.charge(key)(tx)
					leak(tx)
					return resp, errors.Join(err, end)
				})
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
				// The server lets go of the key when it notices that the connection is closed.
				if _, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithWait(limit)); err != nil {
					t.Error(err)
				}
				l.wantOnce(key)
			})
		}
	}
	l.wantHealthy()
}

// A goroutine that fn left behind must neither commit a half of its work nor reach the connection's next user.
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
	_, err = idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
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
	if _, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
	l.wantHealthy()
}

// lateArgument is an argument of a statement that keeps the statement from being sent until it is let go.
type lateArgument struct{ begun, sent chan struct{} }

func newLateArgument() lateArgument { return lateArgument{make(chan struct{}), make(chan struct{})} }

func (a lateArgument) RewriteQuery(_ context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	close(a.begun)
	<-a.sent
	return sql, args, nil
}

// The goroutine is inside a method of tx when fn returns, but has not sent anything: the connection looks idle.
func TestTxInUseWhenFnReturnsNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
		l := newLedger(t, maxConns(1))
		late, stray := newLateArgument(), make(chan error, 1)
		idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			go func() {
				_, err := tx.Exec(ctx, "insert into ledger (key) values ('stray')", late)
				stray <- err
			}()
			await(t, "the stray statement to begin", late.begun)
			return ok, end
		})
		err := pgx.BeginFunc(ctx, l.pool, func(pgx.Tx) error { // the connection's next user
			close(late.sent)
			if err := await(t, "the stray statement to end", stray); err == nil {
				t.Errorf("after %v: the stray statement was executed in somebody else's transaction", end)
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

// endings are ways for fn to leave other than by returning.
var endings = map[string]func(pgx.Tx){
	"panic":           func(pgx.Tx) { panic(errBusiness) },
	"Goexit":          func(pgx.Tx) { runtime.Goexit() },
	"panic with rows": func(tx pgx.Tx) { tx.Query(context.Background(), "select 1"); panic(errBusiness) },
	"Goexit with rows": func(tx pgx.Tx) {
		tx.Query(context.Background(), "select 1")
		runtime.Goexit()
	},
	"panic in a savepoint": func(tx pgx.Tx) {
		pgx.BeginFunc(context.Background(), tx, func(pgx.Tx) error { panic(errBusiness) })
	},
	"panic after an SQL error": func(tx pgx.Tx) { tx.Exec(context.Background(), "select 1/0"); panic(errBusiness) },
	"panic after raw rollback": func(tx pgx.Tx) { tx.Exec(context.Background(), "rollback"); panic(errBusiness) },
}

// escape runs f in a goroutine of its own and tells how it ended: what it panicked with, and whether it returned.
func escape(t *testing.T, f func()) (recovered any, returned bool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		f()
		returned = true
	}()
	await(t, "the goroutine to end", done)
	return recovered, returned
}

func TestPanicAndGoexitOfFnRollBackAndGoOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			recovered, returned := escape(t, func() {
				idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					if _, err := l.charge(name)(tx); err != nil {
						t.Error(err)
					}
					end(tx)
					return ok, nil
				})
			})
			if returned {
				t.Error("Do returned")
			}
			if panicked := strings.HasPrefix(name, "panic"); panicked && recovered != errBusiness || !panicked && recovered != nil {
				t.Errorf("recovered %v", recovered)
			}
			l.wantNone(name)
			waitIdle(t, l.pool)
			if _, err := idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
			l.wantOnce(name)
		})
	}
	l.wantHealthy()
}

func TestTamperingWithTheRecordInsideFnCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, sql := range map[string]string{
		"delete":          "delete from idem.records",
		"truncate":        "truncate idem.records",
		"other operation": "update idem.records set operation_id = gen_random_uuid()",
		"other key":       "update idem.records set key = 'other'",
		"other scope":     "update idem.records set scope = 'other'",
	} {
		t.Run(name, func(t *testing.T) {
			made := l.pool.Stat().NewConnsCount()
			_, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge(name)(tx)
				if err == nil {
					_, err = tx.Exec(ctx, sql)
				}
				return resp, err
			})
			if !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("err = %v, want ErrTxEnded", err)
			}
			l.wantNone(name)
			if n := l.count("select count(*) from idem.records"); n != 0 {
				t.Errorf("%d records are left", n)
			}
			l.wantSameConnections(made)
			if _, err := l.pool.Exec(ctx, "truncate idem.records"); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the completion writes anyway is fn's to change in vain.
func TestTamperingWithTheOutcomeInsideFnIsOverwritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, sql := range map[string]string{
		"complete":            "update idem.records set state = 'completed', status = 7, body = 'x', header = '{}', completed_at = now() where key = 'complete'",
		"update in savepoint": "savepoint s; update idem.records set expires_at = expires_at; release s",
	} {
		first, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(name)(tx)
			if err == nil {
				_, err = tx.Exec(ctx, sql)
			}
			return resp, err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again, err := idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name))
		first.Replayed = true
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		l.wantOnce(name)
	}
}

func TestTimeoutThatFnSetsCountsForTheRecordTooAndUndoesEverything(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	if _, err := l.pool.Exec(ctx, `
		create function dawdle() returns trigger language plpgsql as 'begin perform pg_sleep(60); return new; end';
		create trigger slow before update on idem.records for each row when (new.key = 'slow') execute function dawdle()`); err != nil {
		t.Fatal(err)
	}
	_, err := idem.Do(ctx, l.pool, scope, "slow", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge("slow")(tx)
		if err == nil {
			_, err = tx.Exec(ctx, "set local statement_timeout = '50ms'")
		}
		return resp, err
	})
	if pgErr, ok := err.(*pgconn.PgError); !ok || pgErr.Code != "57014" {
		t.Errorf("err = %v, want the server's 57014", err)
	}
	l.wantNone("slow")
	l.wantSameConnections(1)
	var timeout string
	if err := l.pool.QueryRow(ctx, "show statement_timeout").Scan(&timeout); err != nil || timeout != "0" {
		t.Errorf("statement_timeout stayed at %s, %v", timeout, err)
	}
	l.wantHealthy()
}

func TestSettingsThatFnMakesForItselfDoNotHarmTheRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1), withMode(mode))
			for _, setting := range []string{
				"set local statement_timeout = '10s'", "set local lock_timeout = '1ms'", "set local search_path = ''",
				"set local timezone = 'Asia/Kathmandu'", "set local default_transaction_read_only = on",
				"set local bytea_output = 'escape'", "set local intervalstyle = 'iso_8601'", "set constraints all immediate",
			} {
				stored := idem.Response{Status: 1, Header: map[string][]string{"é": {"ü"}}, Body: []byte("\x00\\'é\xff")}
				fn := func(tx pgx.Tx) (idem.Response, error) {
					_, err := l.charge(setting)(tx)
					if err == nil {
						_, err = tx.Exec(ctx, setting)
					}
					return stored, err
				}
				first, err := idem.Do(ctx, l.pool, scope, setting, hashA, fn)
				if err != nil {
					t.Errorf("%s: %v", setting, err)
					continue
				}
				second, err := idem.Do(ctx, l.pool, scope, setting, hashA, fn)
				first.Replayed = true
				if diff := cmp.Diff(first, second); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", setting, err, diff)
				}
				l.wantOnce(setting)
			}
		})
	}
}

// A constraint that is checked at COMMIT fails like a statement of fn: with its own error, and with nothing committed.
func TestErrorAtCommitIsTheServersOwnAndCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1), withMode(mode))
			if _, err := l.pool.Exec(ctx, `
				create table parent (id int primary key);
				create table child (id int references parent deferrable initially deferred,
					n int unique deferrable initially deferred);
				create function fail() returns trigger language plpgsql as
					'begin raise exception using errcode = new.code, message = ''as the trigger says''; end';
				create table raise (code text);
				create constraint trigger late after insert on raise deferrable initially deferred
					for each row execute function fail()`); err != nil {
				t.Fatal(err)
			}
			for _, test := range []struct{ name, code, sql string }{
				{"foreign key", "23503", "insert into child values (1, 1)"},
				{"unique", "23505", "insert into parent values (2); insert into child values (2, 7), (2, 7)"},
				{"division by zero", "22012", "insert into raise values ('22012')"},
				{"missing table", "42P01", "insert into raise values ('42P01')"},
				{"privilege", "42501", "insert into raise values ('42501')"},
				{"read-only", "25006", "insert into raise values ('25006')"},
				{"no transaction", "25P01", "insert into raise values ('25P01')"},
				{"own", "P0001", "insert into raise values ('P0001')"},
			} {
				made, runs := l.pool.Stat().NewConnsCount(), 0
				res, err := idem.Do(ctx, l.pool, scope, test.name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					runs++
					resp, err := l.charge(test.name)(tx)
					if err == nil {
						_, err = tx.Exec(ctx, test.sql)
					}
					return resp, err
				})
				pgErr, isPg := err.(*pgconn.PgError)
				if !isPg || pgErr.Code != test.code {
					t.Errorf("%s: err = %v, want the server's %s as it is", test.name, err, test.code)
				}
				if errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("%s: %v blames fn for ending the transaction", test.name, err)
				}
				if diff := cmp.Diff(idem.Result{}, res); diff != "" || runs != 1 {
					t.Errorf("%s: %d runs\n%s", test.name, runs, diff)
				}
				l.wantNone(test.name)
				l.wantSameConnections(made)
				l.wantFree(test.name)
			}
		})
	}
}

func TestNotificationIsSentExactlyIfTheEffectIsCommitted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l := newLedger(t, maxConns(2))
	listener, err := l.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(ctx, "listen done"); err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct {
		payload string
		end     error
	}{{"failed", errBusiness}, {"rejected", idem.Reject(ok)}, {"committed", nil}, {"committed", nil}, {"last", nil}} {
		idem.Do(ctx, l.pool, scope, call.payload, hashA, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "select pg_notify('done', $1)", call.payload)
			return ok, errors.Join(err, call.end)
		})
	}
	for _, want := range []string{"committed", "last"} {
		got, err := listener.Conn().WaitForNotification(ctx)
		if err != nil || got.Payload != want {
			t.Fatalf("notified of %+v, %v; want %q", got, err, want)
		}
	}
}

func TestCopyAndBatchInsideFnArePartOfTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, end := range []error{errBusiness, nil} {
		_, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			n, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{"copy"}, {"copy"}}))
			if err != nil || n != 2 {
				t.Errorf("copied %d, %v", n, err)
			}
			batch := &pgx.Batch{}
			batch.Queue("insert into ledger (key) values ($1)", "batch")
			batch.Queue("select count(*) from ledger").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			if err := tx.SendBatch(ctx, batch).Close(); err != nil || n != 3 {
				t.Errorf("sees %d, %v", n, err)
			}
			objects := tx.LargeObjects()
			if _, err := objects.Create(ctx, 4711); err != nil {
				t.Error(err)
			}
			statement, err := tx.Prepare(ctx, "", "insert into ledger (key) values ($1)")
			if err != nil || len(statement.ParamOIDs) != 1 {
				t.Errorf("prepared %+v, %v", statement, err)
			}
			return ok, end
		})
		if err != end {
			t.Errorf("err = %v, want %v", err, end)
		}
		want := map[bool]int{true: 1}[end == nil]
		if c, b, o := l.entries("copy"), l.entries("batch"), l.count("select count(*) from pg_largeobject_metadata"); c != 2*want || b != want || o != want {
			t.Errorf("after %v: %d copied, %d from the batch, %d large objects", end, c, b, o)
		}
	}
	l.wantHealthy()
}

func TestContextThatEndsBeforeCommitRollsBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn   func(ctx context.Context, end func(), tx pgx.Tx) error
		lost bool // the connection, in the course of a statement
	}{
		"before fn returns": {func(_ context.Context, end func(), _ pgx.Tx) error { end(); return nil }, false},
		"before a statement": {func(ctx context.Context, end func(), tx pgx.Tx) error {
			end()
			_, err := tx.Exec(ctx, "select 1")
			return err
		}, false},
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
			res, err := idem.Do(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := l.charge("k")(tx)
				return resp, errors.Join(err, test.fn(ctx, end, tx))
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v, want context.Canceled", err)
			}
			if idem.Retryable(err) {
				t.Errorf("%v is retryable", err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" {
				t.Error(diff)
			}
			l.wantNone("k")
			if !test.lost {
				l.wantSameConnections(1)
			}
			if _, err := idem.Do(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
			l.wantOnce("k")
		})
	}
}

func TestContextThatHasEndedExecutesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	ctx, end := context.WithCancel(context.Background())
	end()
	_, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if !errors.Is(err, context.Canceled) || l.runs.Load() != 0 {
		t.Errorf("err = %v, %d runs", err, l.runs.Load())
	}
	l.wantNone("k")
	l.wantHealthy()
}

func TestConnectionThatFnClosesCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, lose := range map[string]func(pgx.Tx){
		"closed":     func(tx pgx.Tx) { tx.Conn().Close(ctx) },
		"terminated": func(tx pgx.Tx) { tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())") },
	} {
		_, err := idem.Do(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(name)(tx)
			lose(tx)
			return resp, err
		})
		if !errors.Is(err, idem.ErrTxAborted) {
			t.Errorf("%s: err = %v", name, err)
		}
		l.wantNone(name)
		if _, err := idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit)); err != nil {
			t.Error(err)
		}
		l.wantOnce(name)
	}
	l.wantHealthy()
}

// The database's clock alone counts, at the end of fn: whatever became of the expiry that the claim wrote, the record
// lives for the TTL from when its response is recorded.
func TestRecordLivesItsTTLFromTheEndOfFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const ttl = time.Hour
	for _, left := range []time.Duration{-24 * time.Hour, -time.Microsecond, ttl - time.Second, ttl + time.Second} {
		key := left.String()
		res, err := idem.Do(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			// As if so much time had passed since the claim.
			if _, err := tx.Exec(ctx, "update idem.records set expires_at = clock_timestamp() + $1", left); err != nil {
				t.Error(err)
			}
			return l.charge(key)(tx)
		}, idem.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		if lives := res.ExpiresAt.Sub(res.CompletedAt); lives != ttl {
			t.Errorf("with %v left at the end of fn the record lives %v", left, lives)
		}
		if n := l.count(`select count(*) from idem.records where key = $1 and expires_at = $2 and completed_at = $3 and created_at = $4`,
			key, res.ExpiresAt, res.CompletedAt, res.CreatedAt); n != 1 {
			t.Error("the result tells other times than the record")
		}
		if again, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key)); err != nil || !again.Replayed {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// While fn is slower than its own TTL nobody may take the key over: what nobody sees cannot expire.
func TestKeyOfAFnSlowerThanItsTTLStaysInProgress(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	l.charged(ctx, "k")
	l.expire("k") // the claim then takes over a row that others see, expired
	held := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond))
	for range 20 {
		if _, err := idem.Do(ctx, elsewhere, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("err = %v, want ErrInProgress", err)
		}
	}
	held.release()
	if err := held.wait(t); err != nil {
		t.Error(err)
	}
	if l.entries("k") != 2 || l.records("k") != 1 {
		t.Errorf("%d effects, %d records", l.entries("k"), l.records("k"))
	}
}

// charged executes key.
func (l *ledger) charged(ctx context.Context, key string) idem.Result {
	l.t.Helper()
	res, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key))
	if err != nil || res.Replayed {
		l.t.Fatalf("%q: %+v, %v", key, res, err)
	}
	return res
}

// Every field of a record that was taken over is the new execution's.
func TestTakenOverRecordKeepsNothingOfTheExpiredOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, end := range map[string]error{"completed": nil, "rejected": idem.Reject(ok), "failed": errBusiness} {
		old := l.charged(ctx, name)
		l.expire(name)
		empty := func(tx pgx.Tx) (idem.Response, error) { return idem.Response{}, end }
		res, err := idem.Do(ctx, l.pool, scope, name, hashB, empty)
		if end == errBusiness {
			if err != errBusiness || l.count("select count(*) from idem.records where key = $1 and operation_id = $2", name, old.OperationID) != 1 {
				t.Errorf("a failed execution touched the expired record: %v", err)
			}
			continue
		}
		if err != nil || res.OperationID == old.OperationID || !res.CreatedAt.After(old.CreatedAt) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		again, err := idem.Do(ctx, l.pool, scope, name, hashB, l.charge(name))
		res.Replayed = true
		if diff := cmp.Diff(res, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if again.Header != nil || end == nil && (again.Body != nil || again.Status != 0) {
			t.Errorf("%s: something of the expired response is left: %+v", name, again)
		}
		if _, err := idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name)); !errors.Is(err, idem.ErrMismatch) {
			t.Errorf("%s: the expired hash still counts: %v", name, err)
		}
	}
}

func TestOperationIDIsTheSameInFnItsSavepointsTheResultAndTheRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	seen := map[string]bool{}
	for _, key := range []string{"a", "b", "rejected"} {
		var ids []string
		note := func(tx pgx.Tx) {
			id, ok := idem.OperationID(tx)
			if !ok || id == "" {
				t.Error("no operation id")
			}
			ids = append(ids, id)
		}
		res, err := idem.Do(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			note(tx)
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				note(sp)
				return pgx.BeginFunc(ctx, sp, func(sp pgx.Tx) error { note(sp); return nil })
			})
			note(tx)
			if key == "rejected" {
				return ok, idem.Reject(ok)
			}
			return ok, err
		})
		if err != nil {
			t.Fatal(err)
		}
		replay, err := idem.Do(ctx, l.pool, scope, key, hashA, l.charge(key))
		if err != nil {
			t.Fatal(err)
		}
		var recorded string
		if err := l.pool.QueryRow(ctx, "select operation_id::text from idem.records where key = $1", key).Scan(&recorded); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(ids, res.OperationID, replay.OperationID) {
			if id != recorded {
				t.Errorf("%s: operation ids %q, %q, %q differ from the recorded %q", key, ids, res.OperationID, replay.OperationID, recorded)
			}
		}
		if seen[recorded] {
			t.Error("two operations have one id")
		}
		seen[recorded] = true
	}
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if id, ok := idem.OperationID(tx); ok || id != "" {
		t.Errorf("a transaction without an operation has the id %q", id)
	}
	if id, ok := idem.OperationID(nil); ok || id != "" {
		t.Errorf("no transaction has the id %q", id)
	}
}

// Whatever fn does, no call may take a connection with it.
func TestNoEndingOfFnLeaksAConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(2))
	fns := []func(pgx.Tx) (idem.Response, error){
		func(pgx.Tx) (idem.Response, error) { return ok, nil },
		func(pgx.Tx) (idem.Response, error) { return ok, errBusiness },
		func(pgx.Tx) (idem.Response, error) { return ok, idem.Reject(ok) },
		func(tx pgx.Tx) (idem.Response, error) { tx.Commit(ctx); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Exec(ctx, "commit"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Exec(ctx, "select 1/0"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Query(ctx, "select 1"); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { tx.Conn().Close(ctx); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { panic(errBusiness) },
		func(tx pgx.Tx) (idem.Response, error) { runtime.Goexit(); return ok, nil },
		func(tx pgx.Tx) (idem.Response, error) { return idem.Response{Body: make([]byte, 2<<20)}, nil },
	}
	for round := range 5 {
		for i, fn := range fns {
			escape(t, func() { idem.Do(ctx, l.pool, scope, fmt.Sprint(round, "/", i), hashA, fn) })
		}
	}
	waitIdle(t, l.pool)
	l.wantHealthy()
	var conns []*pgxpool.Conn // every connection can be had, and is in no transaction
	for range 2 {
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("a connection is in state %c", status)
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
}
