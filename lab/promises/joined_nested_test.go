package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// outers make an outer call by Do or by DoTx.
var outers = map[string]func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error){
	"Do": func(ctx context.Context, l *ledger, key string, fn func(pgx.Tx) (idem.Response, error)) (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, key, hashA, fn)
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
					outerID, _ := idem.ExecutionID(tx)
					resp, err := l.charge("outer")(tx)
					if err != nil {
						return resp, err
					}
					inner, err = idem.DoTx(ctx, tx, scope, "inner", hashA, func(tx pgx.Tx) (idem.Response, error) {
						if innerID, ok := idem.ExecutionID(tx); !ok || innerID == outerID {
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
					if id, _ := idem.ExecutionID(tx); id != outerID {
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
			if err != nil || inner.ExecutionID == result.ExecutionID {
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
			res, err := outer(ctx, l, "outer", oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
				if _, err := idem.DoTx(ctx, tx, scope, "inner", hashA, l.charge("inner")); err != nil {
					t.Error(err)
				}
				return idem.Response{}, idem.Reject(ok)
			}))
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
	for _, key := range []string{"undone", "undone", "kept"} { // the second call must not find a record of the first to replay
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
	l.wantFree("undone") // already free for others, because the lock was released with the savepoint
	if _, err := idemDo(ctx, l.pool, scope, "kept", hashA, l.charge("kept"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
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

// ignored makes a joined call whose fn returns end, and ignores the result.
func ignored(tx pgx.Tx, key string, end error) {
	_, _ = idem.DoTx(context.Background(), tx, scope, key, hashA, func(pgx.Tx) (idem.Response, error) { return ok, end })
}

// innerCalls are the calls that fn may make itself.
var innerCalls = map[string]func(ctx context.Context, tx pgx.Tx){
	"succeeds": func(_ context.Context, tx pgx.Tx) { ignored(tx, "in", nil) },
	"fails":    func(_ context.Context, tx pgx.Tx) { ignored(tx, "in", errBusiness) },
	"rejects":  func(_ context.Context, tx pgx.Tx) { ignored(tx, "in", idem.Reject(ok)) },
	"panics": func(ctx context.Context, tx pgx.Tx) {
		defer func() { recover() }()
		idem.DoTx(ctx, tx, scope, "in", hashA, func(pgx.Tx) (idem.Response, error) { panic(errBusiness) })
	},
	"replays":             func(_ context.Context, tx pgx.Tx) { ignored(tx, "used", nil) },
	"takes over":          func(_ context.Context, tx pgx.Tx) { ignored(tx, "old", nil) },
	"has the outer's key": func(_ context.Context, tx pgx.Tx) { ignored(tx, "outer", nil) },
	"is rolled back with its savepoint": func(ctx context.Context, tx pgx.Tx) {
		savepoint := must(tx.Begin(ctx))
		ignored(savepoint, "in", nil)
		savepoint.Rollback(ctx)
	},
	"is rolled back with a savepoint of the same name": func(ctx context.Context, tx pgx.Tx) {
		must(tx.Exec(ctx, "savepoint idem"))
		ignored(tx, "in", nil)
		must(tx.Exec(ctx, "rollback to savepoint idem"))
	},
	"has inner calls that succeed and fail": func(ctx context.Context, tx pgx.Tx) {
		_, _ = idem.DoTx(ctx, tx, scope, "in", hashA, func(tx pgx.Tx) (idem.Response, error) {
			ignored(tx, "inmost", nil)
			ignored(tx, "inmost 2", errBusiness)
			return ok, nil
		})
	},
}

// The transaction records whose claim is current. After an inner call, however it ends, the outer
// claim is current again.
func TestOuterCallIsRecordedWhateverBecomesOfTheInnerOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, outer := range outers {
		for what, inner := range innerCalls {
			t.Run(name+"/the inner call "+what, func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				l.charged(ctx, "used")
				l.charged(ctx, "old")
				l.expire("old")
				_, err := outer(ctx, l, "outer", func(tx pgx.Tx) (idem.Response, error) {
					resp, err := l.charge("outer")(tx)
					inner(ctx, tx)
					return resp, err
				})
				if err != nil {
					t.Error(err)
				}
				l.wantOnce("outer")
			})
		}
	}
}
