package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestDoTx_CommitsWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		tx := l.begin(ctx)
		first, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
		if err != nil || first.Replayed || first.Status != 201 {
			t.Fatalf("%+v, %v", first, err)
		}
		wantReplay(t, "inside the transaction", first)(idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")))
		l.wantNone("k") // invisible to others so far
		noError(t, tx.Commit(ctx))
		l.wantOnce("k")
		wantReplay(t, "after the commit", first)(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t)))
	})
}

// A snapshot from before the winner's commit does not contain the response. Postgres then reports a
// serialization failure, and the caller has to run its transaction again.
func TestDoTx_OldSnapshotIsASerializationFailure(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		key := string(level)
		tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		noError(t, err)
		defer tx.Rollback(ctx)
		execute(t, tx, "select 1 from ledger") // takes the snapshot
		l.charged(ctx, key)
		runs := l.runs.Load()
		_, err = idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key))
		if !txn.HasCode(err, "40001") || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want the server's 40001", level, err)
		}
		if l.runs.Load() != runs {
			t.Error("fn was called")
		}
		tx.Rollback(ctx)
		l.wantOnce(key)
	}
}

func TestDoTx_KeyOfAnOpenTransactionIsInProgress(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	elsewhere := l.process()
	holder := l.begin(ctx)
	noError(t, errOf(idem.DoTx(ctx, holder, scope, "k", hashA, l.charge("k"))))
	inProgress := func(name string, err error) {
		t.Helper()
		var busy *idem.InProgressError
		ok := errors.As(err, &busy)
		if !ok || !errors.Is(err, idem.ErrInProgress) || busy.RetryAfter != time.Second || !idem.Retryable(err) {
			t.Errorf("%s: err = %v, want ErrInProgress", name, err)
		}
	}
	for _, hash := range []idem.Hash{hashA, hashB} {
		_, err := idemDo(ctx, elsewhere, scope, "k", hash, l.charge("k"), idem.WithWait(0))
		inProgress("Do", err)
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			_, err := idem.DoTx(ctx, tx, scope, "k", hash, l.charge("k"))
			inProgress("DoTx", err)
			return note(ctx, tx, "bystander")
		})
		wantIs(t, err, nil, "the other caller's transaction")
	}
	noError(t, holder.Commit(ctx))
	l.wantOnce("k")
	if l.runs.Load() != 1 || l.entries("bystander") != 2 {
		t.Errorf("%d runs, %d bystanders", l.runs.Load(), l.entries("bystander"))
	}
}

func TestDoTx_ConcurrentCallsExecuteOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	storm(16, func(int) {
		for {
			err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				return errOf(idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")))
			})
			if err == nil {
				return
			}
			if !idem.Retryable(err) {
				t.Error(err)
				return
			}
		}
	})()
	l.wantOnce("k")
}

// outers make an outer call by Do or by DoTx.
var outers = map[string]func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error){
	"Do": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, key, hashA, fn)
	},
	"DoTx": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (res idem.Result, err error) {
		err = pgx.BeginFunc(ctx, l.pool, joining(ctx, key, fn, &res))
		return res, err
	},
	"DoTx in a savepoint": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (res idem.Result, err error) {
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error { return pgx.BeginFunc(ctx, tx, joining(ctx, key, fn, &res)) })
		return res, err
	},
}

// joining returns a function that calls DoTx in a transaction and stores the result.
func joining(ctx context.Context, key string, fn func(pgx.Tx) (idem.Response, error), res *idem.Result) func(pgx.Tx) error {
	return func(tx pgx.Tx) (err error) {
		*res, err = idem.DoTx(ctx, tx, scope, key, hashA, fn)
		return err
	}
}

func TestDoTx_InsideFnIsPartOfTheOuterCall(t *testing.T) {
	t.Parallel()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			for _, test := range []struct {
				innerEnd, outerEnd error
				want               []string
			}{
				{nil, errBusiness, nil}, {errBusiness, nil, []string{"outer", "after"}}, {nil, nil, []string{"outer", "inner", "after"}},
			} {
				execute(t, l.pool, "truncate ledger, idem.records")
				var inner idem.Result
				result, err := outer(ctx, l, "outer", func(tx pgx.Tx) (idem.Response, error) {
					outerID, _ := idem.ExecutionID(tx)
					resp, err := l.charge("outer")(tx)
					if err != nil {
						return resp, err
					}
					if inner, err = idem.DoTx(ctx, tx, scope, "inner", hashA, l.failing("inner", test.innerEnd)); !errors.Is(err, test.innerEnd) {
						t.Errorf("inner: %v, want %v", err, test.innerEnd)
					}
					if id, _ := idem.ExecutionID(tx); id != outerID {
						t.Errorf("the execution of the outer tx became %q", id)
					}
					return resp, errors.Join(note(ctx, tx, "after"), test.outerEnd)
				})
				if !errors.Is(err, test.outerEnd) || err == nil && inner.ExecutionID == result.ExecutionID {
					t.Errorf("%+v, %+v, %v", inner, result, err)
				}
				l.wantCommitted(test.want...)
				for _, key := range []string{"outer", "inner"} {
					if slices.Contains(test.want, key) {
						l.wantOnce(key)
					} else {
						l.wantNone(key)
					}
				}
			}
		})
	}
}

func TestDoTx_RollbackOfTheCallersSavepointUndoesTheCall(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	tx := l.begin(ctx)
	for _, key := range []string{"undone", "undone", "kept"} { // the second call must not find a record of the first to replay
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			res, err := idem.DoTx(ctx, savepoint, scope, key, hashA, l.charge(key))
			if err != nil || res.Replayed {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
			return map[string]error{"undone": errBusiness}[key]
		})
		if err != nil && err != errBusiness {
			t.Fatal(err)
		}
	}
	l.wantFree("undone") // already free for others, because the lock was released with the savepoint
	wantIs(t, errOf(idemDo(ctx, l.pool, scope, "kept", hashA, l.charge("kept"), idem.WithWait(0))), idem.ErrInProgress)
	replayed(t, "the caller sees who took over")(idem.DoTx(ctx, tx, scope, "undone", hashB, l.charge("undone")))
	noError(t, tx.Commit(ctx))
	l.wantOnce("undone")
	l.wantOnce("kept")
}

// innerCalls are the calls that fn may make itself.
var innerCalls = map[string]func(ctx context.Context, tx pgx.Tx, inner func(tx pgx.Tx, key string, end error)){
	"fails": func(_ context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) { inner(tx, "in", errBusiness) },
	"rejects": func(_ context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) {
		inner(tx, "in", idem.Reject(ok))
	},
	"replays":             func(_ context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) { inner(tx, "used", nil) },
	"takes over":          func(_ context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) { inner(tx, "old", nil) },
	"has the outer's key": func(_ context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) { inner(tx, "outer", nil) },
	"panics": func(ctx context.Context, tx pgx.Tx, _ func(pgx.Tx, string, error)) {
		defer func() { recover() }()
		idem.DoTx(ctx, tx, scope, "in", hashA, func(pgx.Tx) (idem.Response, error) { panic(errBusiness) })
	},
	"is rolled back with a savepoint of the same name": func(ctx context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) {
		must(tx.Exec(ctx, "savepoint idem"))
		inner(tx, "in", nil)
		must(tx.Exec(ctx, "rollback to savepoint idem"))
	},
	"has inner calls that succeed and fail": func(ctx context.Context, tx pgx.Tx, inner func(pgx.Tx, string, error)) {
		idem.DoTx(ctx, tx, scope, "in", hashA, func(tx pgx.Tx) (idem.Response, error) {
			inner(tx, "inmost", nil)
			inner(tx, "inmost 2", errBusiness)
			return ok, nil
		})
	},
}

// The transaction records whose claim is current. After an inner call, however it ends, the outer
// claim is current again.
func TestDoTx_OuterCallIsRecordedWhateverTheInnerOneDoes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	ignored := func(tx pgx.Tx, key string, end error) {
		_, _ = idem.DoTx(ctx, tx, scope, key, hashA, func(pgx.Tx) (idem.Response, error) { return ok, end })
	}
	for name, outer := range outers {
		for what, inner := range innerCalls {
			execute(t, l.pool, "truncate ledger, idem.records")
			l.charged(ctx, "used")
			l.charged(ctx, "old")
			l.expire("old")
			_, err := outer(ctx, l, "outer", l.then("outer", func(tx pgx.Tx) error { inner(ctx, tx, ignored); return nil }))
			wantIs(t, err, nil, name, what, " the inner call")
			l.wantOnce("outer")
		}
	}
}

// However a joined call fails, the caller's writes before and after it are committed, and none of
// fn's.
func TestDoTx_FailureLeavesTheTransactionUnchanged(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		nothing := func(pgx.Tx) error { return nil }
		for name, test := range map[string]struct {
			end  func(pgx.Tx) error
			resp idem.Response
			want error
		}{
			"error":                        {end: func(pgx.Tx) error { return errBusiness }, want: errBusiness},
			"serialization failure":        {end: func(pgx.Tx) error { return serializationFailure }, want: serializationFailure},
			"ignored SQL error":            {end: func(tx pgx.Tx) error { tx.Exec(ctx, "select 1/0"); return nil }, want: idem.ErrTxAborted},
			"commit":                       {end: func(tx pgx.Tx) error { tx.Commit(ctx); return nil }, want: idem.ErrTxEnded},
			"rollback, then Reject":        {end: func(tx pgx.Tx) error { tx.Rollback(ctx); return idem.Reject(ok) }, want: idem.ErrTxEnded},
			"error in an open savepoint":   {end: func(tx pgx.Tx) error { tx.Begin(ctx); return errBusiness }, want: errBusiness},
			"record deleted":               {end: func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "delete from idem.records"); return err }, want: idem.ErrTxEnded},
			"response too large":           {end: nothing, resp: idem.Response{Body: make([]byte, 2<<20)}, want: idem.ErrResponseTooLarge},
			"response that cannot be kept": {end: nothing, resp: idem.Response{Header: header{"\xff": nil}}, want: idem.ErrInvalidResponse},
			"rejection that is too large":  {end: func(pgx.Tx) error { return idem.Reject(idem.Response{Body: make([]byte, 2<<20)}) }, want: idem.ErrResponseTooLarge},
		} {
			execute(t, l.pool, "truncate ledger")
			err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				if err := note(ctx, tx, "before"); err != nil {
					return err
				}
				res, err := idem.DoTx(ctx, tx, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					_, err := l.charge(name)(tx)
					return test.resp, errors.Join(err, test.end(tx))
				})
				if diff := cmp.Diff(idem.Result{}, res); !errors.Is(err, test.want) || diff != "" {
					t.Errorf("%s: err = %v, want %v\n%s", name, err, test.want, diff)
				}
				return note(ctx, tx, "after")
			})
			wantIs(t, err, nil, name, " the caller's transaction")
			l.wantCommitted("before", "after")
			l.wantNone(name)
			l.wantFree(name)
		}
	})
}

func TestDoTx_PanicAndGoexitLeaveTheTransactionUnchanged(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(2))
	for _, name := range []string{"panic", "Goexit", "panic in a savepoint", "panic after an SQL error"} {
		execute(t, l.pool, "truncate ledger")
		tx := l.begin(ctx)
		before := note(ctx, tx, "before")
		recovered, returned := escape(t, func() {
			idem.DoTx(ctx, tx, scope, name, hashA, l.then(name, func(tx pgx.Tx) error { endings[name](tx); return nil }))
		})
		if returned || name != "Goexit" && recovered != errBusiness {
			t.Errorf("%s: recovered %v", name, recovered)
		}
		l.wantFree(name) // already free, although the caller's transaction is still open
		wantIs(t, errors.Join(before, note(ctx, tx, "after"), tx.Commit(ctx)), nil, name, " the caller's transaction")
		if l.entries("before") != 1 || l.entries("after") != 1 {
			t.Errorf("%s: committed %q", name, l.committed())
		}
		l.wantOnce(name)
	}
}

// Rows that cannot be closed make the connection unusable.
func TestDoTx_OpenRowsEndTheCallersTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, end := range map[string]error{"nil": nil, "error": errBusiness, "reject": idem.Reject(ok)} {
		tx := must(l.pool.Begin(ctx))
		_, err := idem.DoTx(ctx, tx, scope, name, hashA, l.then(name, func(tx pgx.Tx) error {
			tx.Query(ctx, "select * from generate_series(1, 100000)")
			return end
		}))
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

// When fn returns, a goroutine is executing a statement or has not sent it yet. Neither the commit
// nor the next statement of the caller of DoTx must meet that statement, so the connection is
// closed.
func TestDoTx_TxInUseWhenFnReturnsClosesTheConnection(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]bool{"the statement runs": true, "the statement is not sent yet": false} {
		for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
			t.Run(fmt.Sprint(name, "/", end), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				execute(t, l.begin(ctx), "select pg_advisory_xact_lock(42)")
				tx, late := l.begin(ctx), newLateArgument()
				var stray <-chan error
				_, err := idem.DoTx(ctx, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
					stray = inBackground(func() error { return errOf(tx.Exec(ctx, "select 'stray' from pg_advisory_xact_lock(42)", late)) })
					await(t, "the stray statement to begin", late.begun)
					if sent {
						close(late.sent)
						awaitBlocked(t, l.pool, 1)
					}
					return ok, end
				})
				if err == nil {
					t.Error("the call is a success")
				}
				var answer string
				if !sent { // a sent statement is still being read by its goroutine
					if err := tx.QueryRow(ctx, "select 'mine'").Scan(&answer); err == nil {
						t.Errorf("the next statement is answered with %q", answer)
					}
					close(late.sent)
				}
				if err := await(t, "the stray statement to end", stray); err == nil {
					t.Error("the stray statement succeeded")
				}
				if err := tx.QueryRow(ctx, "select 'mine'").Scan(&answer); err == nil || !tx.Conn().IsClosed() {
					t.Errorf("the connection is open: %q, %v", answer, err)
				}
				if err := tx.Commit(ctx); err == nil {
					t.Error("the transaction is committed")
				}
				l.wantNone("k")
			})
		}
	}
}

func TestDo_MissingSchemaIsExplained(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, _ *ledger, mode pgx.QueryExecMode) {
		l := ledgerOn(t, pgtest.Open(t, pgtest.EmptyDSN(t), withMode(mode), maxConns(1)))
		explained := func(how string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "run the migrations") || idem.Retryable(err) {
				t.Errorf("%s: %v", how, err)
			}
		}
		for range 2 {
			err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				before := note(ctx, tx, "before")
				_, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t))
				explained("DoTx", err)
				return errors.Join(before, note(ctx, tx, "after"))
			})
			wantIs(t, err, nil, "the caller's transaction")
			_, err = idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t))
			explained("Do", err)
			_, err = idem.Lookup(ctx, l.pool, scope, "k")
			explained("Lookup", err)
		}
		l.wantCommitted("before", "after", "before", "after")
	})
}

// An ended transaction still refers to its connection, which another caller may be using by now.
func TestDoTx_RefusesATransactionThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, spoil := range map[string]func(pgx.Tx) (spoilt pgx.Tx){
		"committed":                    func(tx pgx.Tx) pgx.Tx { tx.Commit(ctx); return tx },
		"rolled back":                  func(tx pgx.Tx) pgx.Tx { tx.Rollback(ctx); return tx },
		"savepoint of a committed one": func(tx pgx.Tx) pgx.Tx { savepoint := must(tx.Begin(ctx)); tx.Commit(ctx); return savepoint },
		"kept from fn": func(tx pgx.Tx) (kept pgx.Tx) {
			idem.DoTx(ctx, tx, scope, "keep", hashA, func(tx pgx.Tx) (idem.Response, error) { kept = tx; return ok, nil })
			tx.Rollback(ctx)
			return kept
		},
	} {
		over := spoil(must(l.pool.Begin(ctx)))
		err := pgx.BeginFunc(ctx, l.pool, func(next pgx.Tx) error {
			wantIs(t, errOf(idem.DoTx(ctx, over, scope, "k", hashA, neverCalled(t))), pgx.ErrTxClosed, name)
			return note(ctx, next, name)
		})
		if err != nil || l.entries(name) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func(pgx.Tx){
		"aborted":           func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0") },
		"rows open":         func(tx pgx.Tx) { tx.Query(ctx, "select 1") },
		"connection closed": func(tx pgx.Tx) { tx.Conn().Close(ctx) },
	} {
		tx := must(l.pool.Begin(ctx))
		spoil(tx)
		if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t)); err == nil {
			t.Errorf("%s: no error", name)
		}
		tx.Rollback(ctx)
	}
	l.wantNone("k")
}

func TestDoTx_EndedContextSparesTheTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.charged(ctx, "known")
	tx := l.begin(ctx)
	over, end := context.WithCancel(ctx)
	_, during := idem.DoTx(over, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		end()
		return l.charge("k")(tx)
	})
	_, afterwards := idem.DoTx(over, tx, scope, "k", hashA, l.charge("k"))
	_, replay := idem.DoTx(over, tx, scope, "known", hashA, l.charge("known"))
	for _, err := range []error{during, afterwards, replay} {
		wantIs(t, err, context.Canceled)
	}
	wantIs(t, errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)), nil, "the caller's transaction")
	l.wantCommitted("known", "after")
	l.wantNone("k")
}

// While a migration holds a lock on the table, a call cannot prepare its statements or make a new
// plan. The call fails without a claim of the key, and the caller's transaction continues.
func TestDoTx_FailureToPrepareSparesTheTransaction(t *testing.T) {
	t.Parallel()
	for name, warm := range map[string]bool{"a new connection": false, "a plan that is due": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			pool := l.process(maxConns(1), withParameter("lock_timeout", "50ms"))
			if warm {
				noError(t, errOf(outers["DoTx"](ctx, ledgerOn(t, pool), "warm", answer(ok))))
				awaitDue(t, pool)
			}
			tx := must(pool.Begin(ctx))
			defer tx.Rollback(ctx)
			before := note(ctx, tx, "before")
			unlock := lockRecords(t, l.pool)
			_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			if cause := idem.CauseOf(err); errors.Is(err, idem.ErrInProgress) || cause != idem.CauseLockTimeout || !idem.Retryable(err) {
				t.Errorf("err = %v, of cause %q", err, cause)
			}
			unlock()
			wantIs(t, errOf(idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))), nil, "once the table is free")
			noError(t, errors.Join(before, note(ctx, tx, "after"), tx.Commit(ctx)))
			l.wantCommitted("before", "k", "after")
			l.wantOnce("k")
		})
	}
}

// saved is how many calls of one transaction have a savepoint of their own. As many calls have an
// advisory lock.
const saved = 32

// The server's lock table has room for a few thousand locks. A client that fills it blocks all
// others. First runs, replays and takeovers take few locks, also with a savepoint of the caller
// around each call.
func TestDoTx_ManyKeysInOneTransactionTakeFewLocks(t *testing.T) {
	t.Parallel()
	const n = 5 * saved
	for _, kind := range []string{"new", "recorded", "expired"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			if kind != "new" {
				l.seed(n, "k")
			}
			if kind == "expired" {
				l.expireAll()
			}
			tx := l.begin(ctx)
			for i := range n {
				key := fmt.Sprint("k-", i+1)
				call := func(tx pgx.Tx) error {
					res, err := idem.DoTx(ctx, tx, scope, key, hashA, answer(ok))
					if err == nil && res.Replayed != (kind == "recorded") {
						t.Errorf("%s: %+v", key, res)
					}
					return err
				}
				noError(t, call(tx))
				noError(t, pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
					return errOf(idem.DoTx(ctx, savepoint, scope, "again "+key, hashA, answer(ok)))
				}))
			}
			if locks := l.count("select count(*) from pg_locks where pid = $1", tx.Conn().PgConn().PID()); locks > 3*saved {
				t.Errorf("%d locks for %d keys", locks, 2*n)
			}
			for _, key := range []string{"again k-1", fmt.Sprint("again k-", n)} {
				wantIs(t, errOf(idemDo(ctx, l.pool, scope, key, hashA, answer(ok), idem.WithWait(0))), idem.ErrInProgress, key)
			}
			noError(t, tx.Commit(ctx))
			l.wantCount("records", 2*n, "select count(*) from idem.records where state = 'completed'")
		})
	}
}

// past makes calls in tx until further calls have no savepoint.
func past(t *testing.T, ctx context.Context, tx pgx.Tx) {
	t.Helper()
	for i := range saved {
		noError(t, errOf(idem.DoTx(ctx, tx, scope, fmt.Sprint("past", i), hashA, answer(ok))))
	}
}

// A failed call without a savepoint cannot be undone alone. Its writes must not be committed
// either.
func TestDoTx_FailurePastTheSavepointsAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resp       idem.Response
		end, wants error
	}{
		"fn fails":                  {ok, errBusiness, errBusiness},
		"fn rejects":                {ok, idem.Reject(idem.Response{Status: 402}), idem.ErrTxAborted},
		"the response is too large": {idem.Response{Body: make([]byte, 2<<20)}, nil, idem.ErrResponseTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			tx := l.begin(ctx)
			past(t, ctx, tx)
			_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.ending("k", test.resp, test.end))
			if !errors.Is(err, test.wants) || idem.Retryable(err) {
				t.Errorf("err = %v", err)
			}
			if errors.Is(err, idem.ErrTxAborted) && !containsAll(err.Error(), "savepoint", "tx.Begin") {
				t.Errorf("the remedy is missing: %v", err)
			}
			wantIs(t, tx.Commit(ctx), pgx.ErrTxCommitRollback, "COMMIT")
			l.wantNone("k")
			l.wantNone("past0")
		})
	}
}

// A key in progress elsewhere does not fail the transaction, with or without a savepoint. The
// lock_timeout of the caller stays as it was.
func TestDoTx_RefusalPastTheSavepointsSparesTheTransaction(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		l.charged(ctx, "recorded")
		l.charged(ctx, "expired")
		l.expire("expired")
		other := l.begin(ctx)
		for _, key := range []string{"held", "expired"} {
			noError(t, errOf(idem.DoTx(ctx, other, scope, key, hashA, answer(ok))))
		}
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local lock_timeout = '7s'"); err != nil {
				return err
			}
			past(t, ctx, tx)
			replayed(t)(idem.DoTx(ctx, tx, scope, "recorded", hashA, l.charge("recorded")))
			wantIs(t, errOf(idem.DoTx(ctx, tx, scope, "recorded", hashB, l.charge("recorded"))), idem.ErrMismatch)
			for _, key := range []string{"held", "expired"} {
				wantIs(t, errOf(idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key))), idem.ErrInProgress, key)
			}
			if _, err := idem.DoTx(ctx, tx, scope, "mine", hashA, l.charge("mine")); err != nil {
				return err
			}
			var timeout string
			if err := tx.QueryRow(ctx, "show lock_timeout").Scan(&timeout); err != nil || timeout != "7s" {
				t.Errorf("lock_timeout = %s, %v", timeout, err)
			}
			return nil
		})
		wantIs(t, err, nil)
		l.wantOnce("mine")
	})
}
