package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

// note makes an entry that is the caller's own, not of an execution.
func note(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, "insert into ledger (key) values ($1)", key)
	return err
}

// committed returns the keys of all committed entries, in the order of their making.
func (l *ledger) committed() []string {
	l.t.Helper()
	rows, _ := l.pool.Query(context.Background(), "select key from ledger order by id")
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.t.Fatal(err)
	}
	return keys
}

func (l *ledger) wantCommitted(want ...string) {
	l.t.Helper()
	if got := l.committed(); !slices.Equal(got, want) {
		l.t.Errorf("committed %q, want %q", got, want)
	}
}

// begin begins a transaction that is rolled back when the test is over, unless it has ended by then.
func (l *ledger) begin(ctx context.Context) pgx.Tx {
	l.t.Helper()
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

func TestJoinedCallIsCommittedWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			tx := l.begin(ctx)
			if err := note(ctx, tx, "before"); err != nil {
				t.Fatal(err)
			}
			first, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			if err != nil || first.Replayed || first.Status != 201 {
				t.Fatalf("%+v, %v", first, err)
			}
			inside, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			want := first
			want.Replayed = true
			if diff := cmp.Diff(want, inside); err != nil || diff != "" {
				t.Errorf("inside the transaction: %v\n%s", err, diff)
			}
			l.wantNone("k") // others see nothing yet
			if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
				t.Fatal(err)
			}
			l.wantCommitted("before", "k", "after")
			l.wantOnce("k")
			outside, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k"))
			if diff := cmp.Diff(want, outside); err != nil || diff != "" {
				t.Errorf("after the commit: %v\n%s", err, diff)
			}
			if l.runs.Load() != 1 {
				t.Errorf("fn ran %d times", l.runs.Load())
			}
		})
	}
}

func TestJoinedCallVanishesWithTheCallersRollback(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for key, end := range map[string]error{"completed": nil, "rejected": idem.Reject(ok)} {
		tx := l.begin(ctx)
		fn := func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(key)(tx)
			return resp, errors.Join(err, end)
		}
		if _, err := idem.DoTx(ctx, tx, scope, key, hashA, fn); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		l.wantNone(key)
		l.wantFree(key)
	}
}

func TestJoinedCallReplaysWhatDoRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	want := l.charged(ctx, "k")
	want.Replayed = true
	tx := l.begin(ctx)
	got, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashB, l.charge("k")); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("err = %v, want ErrMismatch", err)
	}
	if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
		t.Error(err)
	}
	l.wantCommitted("k", "after")
}

// However a joined call fails, what the caller did before and does after is committed, and nothing of fn is.
func TestJoinedCallThatFailsLeavesTheCallersTransactionAsItWas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			for name, test := range map[string]struct {
				end  func(pgx.Tx) error
				resp idem.Response
				want error
			}{
				"error":                      {end: func(pgx.Tx) error { return errBusiness }, want: errBusiness},
				"serialization failure":      {end: func(pgx.Tx) error { return serializationFailure }, want: serializationFailure},
				"ignored SQL error":          {end: func(tx pgx.Tx) error { tx.Exec(ctx, "select 1/0"); return nil }, want: idem.ErrTxAborted},
				"commit":                     {end: func(tx pgx.Tx) error { tx.Commit(ctx); return nil }, want: idem.ErrTxEnded},
				"rollback":                   {end: func(tx pgx.Tx) error { tx.Rollback(ctx); return nil }, want: idem.ErrTxEnded},
				"rollback, then Reject":      {end: func(tx pgx.Tx) error { tx.Rollback(ctx); return idem.Reject(ok) }, want: idem.ErrTxEnded},
				"error in an open savepoint": {end: func(tx pgx.Tx) error { tx.Begin(ctx); return errBusiness }, want: errBusiness},
				"record deleted":             {end: func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "delete from idem.records"); return err }, want: idem.ErrTxEnded},
				"record of another operation": {end: func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "update idem.records set operation_id = gen_random_uuid()")
					return err
				}, want: idem.ErrTxEnded},
				"response too large":           {end: func(pgx.Tx) error { return nil }, resp: idem.Response{Body: make([]byte, 2<<20)}, want: idem.ErrResponseTooLarge},
				"response that cannot be kept": {end: func(pgx.Tx) error { return nil }, resp: idem.Response{Header: map[string][]string{"\xff": nil}}, want: idem.ErrInvalidResponse},
				"rejection that is too large":  {end: func(pgx.Tx) error { return idem.Reject(idem.Response{Body: make([]byte, 2<<20)}) }, want: idem.ErrResponseTooLarge},
			} {
				if _, err := l.pool.Exec(ctx, "truncate ledger"); err != nil {
					t.Fatal(err)
				}
				err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					if err := note(ctx, tx, "before"); err != nil {
						return err
					}
					res, err := idem.DoTx(ctx, tx, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
						_, err := l.charge(name)(tx)
						return test.resp, errors.Join(err, test.end(tx))
					})
					if !errors.Is(err, test.want) {
						t.Errorf("%s: err = %v, want %v", name, err, test.want)
					}
					if diff := cmp.Diff(idem.Result{}, res); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
					return note(ctx, tx, "after")
				})
				if err != nil {
					t.Errorf("%s: the caller's transaction: %v", name, err)
				}
				l.wantCommitted("before", "after")
				l.wantNone(name)
				l.wantFree(name)
			}
		})
	}
}

func TestJoinedRejectKeepsTheCallersWorkAndTheRejection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	var first idem.Result
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		err := note(ctx, tx, "before")
		if err != nil {
			return err
		}
		first, err = idem.DoTx(ctx, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			l.charge("k")(tx)
			tx.Exec(ctx, "select 1/0") // a savepoint undoes that too
			return idem.Response{}, idem.Reject(ok)
		})
		if err != nil || !first.Rejected || first.Replayed {
			t.Errorf("%+v, %v", first, err)
		}
		return note(ctx, tx, "after")
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantCommitted("before", "after")
	again, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	first.Replayed = true
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestPanicAndGoexitOfAJoinedFnLeaveTheCallersTransactionAsItWas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(2))
	for _, name := range []string{"panic", "Goexit", "panic in a savepoint", "panic after an SQL error"} {
		if _, err := l.pool.Exec(ctx, "truncate ledger"); err != nil {
			t.Fatal(err)
		}
		tx := l.begin(ctx)
		if err := note(ctx, tx, "before"); err != nil {
			t.Fatal(err)
		}
		recovered, returned := escape(t, func() {
			idem.DoTx(ctx, tx, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				if _, err := l.charge(name)(tx); err != nil {
					t.Error(err)
				}
				endings[name](tx)
				return ok, nil
			})
		})
		if returned || name != "Goexit" && recovered != errBusiness {
			t.Errorf("%s: recovered %v", name, recovered)
		}
		l.wantFree(name) // even before the caller has ended its transaction
		if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
			t.Errorf("%s: the caller's transaction: %v", name, err)
		}
		if l.entries("before") != 1 || l.entries("after") != 1 {
			t.Errorf("%s: committed %q", name, l.committed())
		}
		l.wantOnce(name)
	}
}

// Rows that nobody can close keep the connection from being used ever again.
func TestRowsLeftOpenInAJoinedFnEndTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, end := range map[string]error{"nil": nil, "error": errBusiness, "reject": idem.Reject(ok)} {
		tx, err := l.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = idem.DoTx(ctx, tx, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
			l.charge(name)(tx)
			tx.Query(ctx, "select * from generate_series(1, 100000)")
			return ok, end
		})
		if want := map[bool]error{true: errBusiness, false: idem.ErrTxAborted}[end == errBusiness]; !errors.Is(err, want) {
			t.Errorf("%s: err = %v, want %v", name, err, want)
		}
		if err := tx.Commit(ctx); err == nil {
			t.Errorf("%s: the caller could commit", name)
		}
		l.wantNone(name)
	}
	l.wantHealthy()
}

// A goroutine that fn left inside a method of tx must not write into what the caller goes on to commit.
func TestTxInUseWhenAJoinedFnReturnsNeverReachesTheCallersCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
		l := newLedger(t, maxConns(1))
		tx, err := l.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		late, stray := newLateArgument(), make(chan error, 1)
		idem.DoTx(ctx, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			go func() {
				_, err := tx.Exec(ctx, "insert into ledger (key) values ('stray')", late)
				stray <- err
			}()
			await(t, "the stray statement to begin", late.begun)
			return ok, end
		})
		close(late.sent)
		if err := await(t, "the stray statement to end", stray); err == nil {
			t.Errorf("after %v: the stray statement was executed", end)
		}
		tx.Commit(ctx)
		if n := l.entries("stray"); n != 0 {
			t.Errorf("after %v: %d stray effects are committed", end, n)
		}
		l.wantHealthy()
	}
}

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
		busy, ok := errors.AsType[*idem.InProgressError](err)
		if !ok || !errors.Is(err, idem.ErrInProgress) || busy.RetryAfter != time.Second || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want ErrInProgress", name, err)
		}
	}
	for _, hash := range []idem.Hash{hashA, hashB} {
		_, err := idem.Do(ctx, elsewhere, scope, "k", hash, l.charge("k"), idem.WithWait(0))
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
			res, err = idem.Do(ctx, l.pool, scope, name, hashA, l.charge(name), idem.WithWait(limit), idem.WithObserver(w))
		}()
		w.await(t, "waiting", 1)
		if commit {
			tx.Commit(ctx)
		} else {
			tx.Rollback(ctx)
		}
		await(t, "Do to return", done)
		if err != nil || res.Replayed != commit || (res.OperationID == first.OperationID) != commit {
			t.Errorf("after %s: %+v, %v", name, res, err)
		}
		l.wantOnce(name)
	}
}

// outer calls Do or DoTx.
var outers = map[string]func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error){
	"Do": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error) {
		return idem.Do(ctx, l.pool, scope, key, hashA, fn)
	},
	"DoTx": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (res idem.Result, err error) {
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			var err error
			res, err = idem.DoTx(ctx, tx, scope, key, hashA, fn)
			return err
		})
		return res, err
	},
	"DoTx in a savepoint": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (res idem.Result, err error) {
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				var err error
				res, err = idem.DoTx(ctx, tx, scope, key, hashA, fn)
				return err
			})
		})
		return res, err
	},
}

func TestJoinedCallInsideFnIsPartOfTheOuterCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			nest := func(innerEnd, outerEnd error) (inner, result idem.Result, err error) {
				result, err = outer(ctx, l, "outer", func(tx pgx.Tx) (idem.Response, error) {
					outerID, _ := idem.OperationID(tx)
					resp, err := l.charge("outer")(tx)
					if err != nil {
						return resp, err
					}
					inner, err = idem.DoTx(ctx, tx, scope, "inner", hashA, func(tx pgx.Tx) (idem.Response, error) {
						if innerID, ok := idem.OperationID(tx); !ok || innerID == outerID {
							t.Errorf("inner operation %q, outer %q", innerID, outerID)
						}
						resp, err := l.charge("inner")(tx)
						return resp, errors.Join(err, innerEnd)
					})
					if !errors.Is(err, innerEnd) {
						t.Errorf("inner: %v, want %v", err, innerEnd)
					}
					if err := note(ctx, tx, "after"); err != nil {
						return resp, err
					}
					if id, _ := idem.OperationID(tx); id != outerID {
						t.Errorf("the operation of the outer tx became %q", id)
					}
					return resp, outerEnd
				})
				return inner, result, err
			}
			if _, _, err := nest(nil, errBusiness); !errors.Is(err, errBusiness) {
				t.Error(err)
			}
			l.wantNone("outer")
			l.wantNone("inner")
			l.wantCommitted()
			if _, _, err := nest(errBusiness, nil); err != nil {
				t.Error(err)
			}
			l.wantOnce("outer")
			l.wantNone("inner")
			l.wantCommitted("outer", "after")
			if _, err := l.pool.Exec(ctx, "truncate ledger, idem.records"); err != nil {
				t.Fatal(err)
			}
			inner, result, err := nest(nil, nil)
			if err != nil || inner.OperationID == result.OperationID {
				t.Errorf("%+v, %+v, %v", inner, result, err)
			}
			l.wantOnce("outer")
			l.wantOnce("inner")
			l.wantCommitted("outer", "inner", "after")
		})
	}
}

func TestRejectOfTheOuterCallUndoesTheInnerOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			res, err := outer(ctx, l, "outer", func(tx pgx.Tx) (idem.Response, error) {
				if _, err := idem.DoTx(ctx, tx, scope, "inner", hashA, l.charge("inner")); err != nil {
					t.Error(err)
				}
				return idem.Response{}, idem.Reject(ok)
			})
			if err != nil || !res.Rejected {
				t.Errorf("%+v, %v", res, err)
			}
			l.wantNone("inner")
			l.wantFree("inner")
		})
	}
}

func TestTheSameKeyInsideItsOwnFnIsInProgress(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			res, err := outer(ctx, l, "k", func(tx pgx.Tx) (idem.Response, error) {
				for range 2 {
					if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); !errors.Is(err, idem.ErrInProgress) {
						t.Errorf("the same request: err = %v, want ErrInProgress", err)
					}
					if _, err := idem.DoTx(ctx, tx, scope, "k", hashB, l.charge("k")); err == nil {
						t.Error("another request under the same key was executed")
					}
				}
				return l.charge("k")(tx)
			})
			if err != nil || res.Replayed || l.runs.Load() != 1 {
				t.Errorf("%+v, %v, %d runs", res, err, l.runs.Load())
			}
			l.wantOnce("k")
		})
	}
}

func TestRollbackOfTheCallersSavepointTakesTheJoinedCallWithIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	if err := note(ctx, tx, "before"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"undone", "undone", "kept"} { // twice: the first time must leave nothing to be replayed
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		res, err := idem.DoTx(ctx, savepoint, scope, key, hashA, l.charge(key))
		if err != nil || res.Replayed {
			t.Errorf("%s: %+v, %v", key, res, err)
		}
		if key == "kept" {
			err = savepoint.Commit(ctx)
		} else {
			err = savepoint.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.wantFree("undone") // for others, while this transaction is open: the lock went with the savepoint
	if _, err := idem.Do(ctx, l.pool, scope, "kept", hashA, l.charge("kept"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v, want ErrInProgress", err)
	}
	if res, err := idem.DoTx(ctx, tx, scope, "undone", hashB, l.charge("undone")); err != nil || !res.Replayed {
		t.Errorf("the caller does not see who took over: %+v, %v", res, err)
	}
	if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
		t.Fatal(err)
	}
	l.wantOnce("undone")
	l.wantOnce("kept")
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

func TestJoinedCallOnADatabaseWithoutTheSchemaSaysSoAndSparesTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := ledgerOn(t, pgtest.Open(t, pgtest.EmptyDSN(t), withMode(mode), maxConns(1)))
			for range 2 {
				err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					if err := note(ctx, tx, "before"); err != nil {
						return err
					}
					_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
					pgErr, isPg := errors.AsType[*pgconn.PgError](err)
					if !isPg || pgErr.Code != "42P01" && pgErr.Code != "42704" && pgErr.Code != "3F000" {
						t.Errorf("err = %v, want the server's 42P01 with a hint", err)
					}
					if idem.Retryable(err) {
						t.Errorf("%v is retryable", err)
					}
					return note(ctx, tx, "after")
				})
				if err != nil {
					t.Errorf("the caller's transaction: %v", err)
				}
			}
			l.wantCommitted("before", "after", "before", "after")
			if _, err := idem.Do(ctx, l.pool, scope, "k", hashA, l.charge("k")); err == nil || l.runs.Load() != 0 {
				t.Errorf("Do: %v, %d runs", err, l.runs.Load())
			}
		})
	}
}

func TestJoinedCallRefusesATransactionThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, test := range map[string]struct {
		spoil func(pgx.Tx)
		want  error
	}{
		"committed":         {func(tx pgx.Tx) { tx.Commit(ctx) }, pgx.ErrTxClosed},
		"rolled back":       {func(tx pgx.Tx) { tx.Rollback(ctx) }, pgx.ErrTxClosed},
		"connection closed": {func(tx pgx.Tx) { tx.Conn().Close(ctx) }, pgx.ErrTxClosed},
		"aborted":           {func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0") }, nil},
		"rows open":         {func(tx pgx.Tx) { tx.Query(ctx, "select 1") }, nil},
	} {
		tx, err := l.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		test.spoil(tx)
		_, err = idem.DoTx(ctx, tx, scope, name, hashA, l.charge(name))
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: err = %v, want %v", name, err, test.want)
		}
		if tx.Rollback(ctx); l.runs.Load() != 0 {
			t.Fatalf("%s: fn was called", name)
		}
		l.wantNone(name)
	}
	if _, err := idem.DoTx(ctx, nil, scope, "nil", hashA, l.charge("nil")); err == nil {
		t.Error("a nil tx was accepted")
	}
	l.wantHealthy()
}

// A transaction that is over still knows its connection, which is somebody else's by then.
func TestJoinedCallOnAnEndedTransactionNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, ended := range map[string]func(*ledger) pgx.Tx{
		"committed":   func(l *ledger) pgx.Tx { tx := l.begin(ctx); tx.Commit(ctx); return tx },
		"rolled back": func(l *ledger) pgx.Tx { tx := l.begin(ctx); tx.Rollback(ctx); return tx },
		"kept from fn": func(l *ledger) (kept pgx.Tx) {
			idem.Do(ctx, l.pool, scope, "keep", hashA, func(tx pgx.Tx) (idem.Response, error) { kept = tx; return ok, nil })
			return kept
		},
		"savepoint of a committed one": func(l *ledger) pgx.Tx {
			tx := l.begin(ctx)
			savepoint, err := tx.Begin(ctx)
			if err := errors.Join(err, tx.Commit(ctx)); err != nil {
				l.t.Error(err)
			}
			return savepoint
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			over := ended(l)
			err := pgx.BeginFunc(ctx, l.pool, func(next pgx.Tx) error {
				_, err := idem.DoTx(ctx, over, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) {
					t.Error("fn was called")
					return ok, nil
				})
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("err = %v, want pgx.ErrTxClosed", err)
				}
				return note(ctx, next, "next")
			})
			if err != nil {
				t.Error(err)
			}
			l.wantNone("k")
			l.wantCommitted("next")
		})
	}
}

func TestJoinedCallOnAClosedSavepointIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	for _, end := range []func(pgx.Tx) error{
		func(sp pgx.Tx) error { return sp.Commit(ctx) },
		func(sp pgx.Tx) error { return sp.Rollback(ctx) },
	} {
		savepoint, err := tx.Begin(ctx)
		if err := errors.Join(err, end(savepoint)); err != nil {
			t.Fatal(err)
		}
		_, err = idem.DoTx(ctx, savepoint, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) {
			t.Error("fn was called")
			return ok, nil
		})
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("err = %v, want pgx.ErrTxClosed", err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
	l.wantNone("k")
}

func TestRefusedJoinedCallLeavesTheTransactionAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		for name, call := range map[string]func() (idem.Result, error){
			"WithWait": func() (idem.Result, error) {
				return idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
			},
			"WithRetries": func() (idem.Result, error) {
				return idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), idem.WithRetries(1))
			},
			"WithTxOptions": func() (idem.Result, error) {
				return idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), idem.WithTxOptions(pgx.TxOptions{}))
			},
			"key":   func() (idem.Result, error) { return idem.DoTx(ctx, tx, scope, "", hashA, l.charge("k")) },
			"scope": func() (idem.Result, error) { return idem.DoTx(ctx, tx, "", "k", hashA, l.charge("k")) },
			"fn":    func() (idem.Result, error) { return idem.DoTx(ctx, tx, scope, "k", hashA, nil) },
		} {
			if _, err := call(); err == nil || idem.Retryable(err) {
				t.Errorf("%s: err = %v", name, err)
			}
		}
		return note(ctx, tx, "after")
	})
	if err != nil || l.runs.Load() != 0 {
		t.Errorf("%v, %d runs", err, l.runs.Load())
	}
	l.wantCommitted("after")
	l.wantNone("k")
}

func TestEndingTheCallersTransactionBySQLIsNeverASuccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, end := range rawEnds {
		for _, returned := range returnsAfterEnd {
			name := end.name + ", returns " + returned.name
			t.Run(name, func(t *testing.T) {
				tx, err := l.pool.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(ctx)
				res, err := idem.DoTx(ctx, tx, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					l.charge(name)(tx)
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
				if diff := cmp.Diff(idem.Result{}, res); diff != "" {
					t.Error(diff)
				}
				tx.Commit(ctx)
				if end.committed {
					l.wantRefusedUntilExpiry(name)
				} else {
					l.wantNone(name)
				}
			})
		}
	}
}

func TestJoinedCallWorksOnTransactionsOfEveryOrigin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	for _, mode := range execModes {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		for name, begin := range map[string]func() (pgx.Tx, error){
			"plain":           func() (pgx.Tx, error) { return conn.Begin(ctx) },
			"serializable":    func() (pgx.Tx, error) { return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}) },
			"repeatable read": func() (pgx.Tx, error) { return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}) },
			"of a batch": func() (pgx.Tx, error) {
				batch := &pgx.Batch{}
				batch.BeginTx(pgx.TxOptions{})
				results := conn.SendBatch(ctx, batch)
				return results.Tx(), results.Close()
			},
		} {
			key := mode.String() + " " + name
			tx, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if res, err := idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key)); err != nil || res.Replayed != (i > 0) {
					t.Errorf("%s: %+v, %v", key, res, err)
				}
			}
			if err := tx.Commit(ctx); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			l.wantOnce(key)
		}
	}
}

func TestJoinedCallInAReadOnlyTransactionSaysSoAndSparesIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	l.charged(ctx, "known")
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	for _, key := range []string{"new", "known"} {
		_, err := idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key))
		if pgErr, isPg := errors.AsType[*pgconn.PgError](err); !isPg || pgErr.Code != "25006" {
			t.Errorf("%s: err = %v, want the server's 25006", key, err)
		}
		var n int
		if err := tx.QueryRow(ctx, "select count(*) from ledger").Scan(&n); err != nil || n != 1 {
			t.Errorf("the transaction afterwards: %d, %v", n, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
}

// In a snapshot from before the winner's commit the answer cannot be read: Postgres asks to run the transaction again, and
// it is the caller's to run.
func TestJoinedCallInAnOldSnapshotIsASerializationFailureNotAWrongAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		key := string(level)
		tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, "select 1 from ledger"); err != nil { // takes the snapshot
			t.Fatal(err)
		}
		l.charged(ctx, key)
		runs := l.runs.Load()
		_, err = idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key))
		if pgErr, isPg := errors.AsType[*pgconn.PgError](err); !isPg || pgErr.Code != "40001" || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want the server's 40001", level, err)
		}
		if l.runs.Load() != runs {
			t.Error("fn was called")
		}
		tx.Rollback(ctx)
		l.wantOnce(key)
	}
}

func TestContextThatHasEndedSparesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	l.charged(ctx, "known")
	for _, cold := range []bool{true, false} {
		tx := l.begin(ctx)
		if !cold {
			if _, err := idem.DoTx(ctx, tx, scope, "warm", hashA, l.charge("warm")); err != nil {
				t.Fatal(err)
			}
		}
		over, end := context.WithCancel(ctx)
		end()
		for _, key := range []string{"k", "known"} {
			if _, err := idem.DoTx(over, tx, scope, key, hashA, l.charge(key)); !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v, want context.Canceled", err)
			}
		}
		over, end = context.WithCancel(ctx)
		_, err := idem.DoTx(over, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			end()
			return l.charge("k")(tx)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want context.Canceled", err)
		}
		if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
			t.Errorf("the caller's transaction: %v", err)
		}
		l.wantNone("k")
	}
	if n := l.entries("after"); n != 2 {
		t.Errorf("%d effects of the caller", n)
	}
}

// The statements of a warm connection can be discarded under a transaction, for instance by DISCARD ALL between its users.
func TestJoinedCallSurvivesThatItsStatementsWereDiscarded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for i, spoil := range []string{"deallocate all", "discard all"} {
		l.charged(ctx, fmt.Sprint("warm", i))
		waitIdle(t, l.pool)
		if _, err := l.pool.Exec(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		var err error
		for range 2 { // a caller runs its transaction again after an error: then, at the latest, it has to work
			err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, scope, spoil, hashA, l.charge(spoil))
				return err
			})
		}
		if err != nil {
			t.Errorf("after %q a connection is of no use any more: %v", spoil, err)
		}
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

func TestOperationIDOfAJoinedCallIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	res, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := l.count("select count(*) from ledger join idem.records using (key, operation_id) where operation_id = $1", res.OperationID); n != 1 {
		t.Error("fn, the result and the record do not agree on the operation id")
	}
}
