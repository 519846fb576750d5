package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// However a joined call fails, the caller's writes before and after it are committed, and none of
// fn's.
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
					_, err := tx.Exec(ctx, "update idem.records set execution_id = gen_random_uuid()")
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
			tx.Exec(ctx, "select 1/0") // a savepoint undoes the failed statement too
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
	again, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
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
		l.wantFree(name) // already free, although the caller's transaction is still open
		if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
			t.Errorf("%s: the caller's transaction: %v", name, err)
		}
		if l.entries("before") != 1 || l.entries("after") != 1 {
			t.Errorf("%s: committed %q", name, l.committed())
		}
		l.wantOnce(name)
	}
}

// Rows that cannot be closed make the connection unusable.
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

// A goroutine that fn has left inside a method of tx must not write into the transaction that the
// caller then commits.
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

// When fn returns, a goroutine is executing a statement or has not sent it yet. The next statement
// of the caller of DoTx must not get the answer to that statement, so the connection is closed.
func TestNextStatementAfterATxInUseFindsItsConnectionClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, sent := range map[string]bool{"the statement runs": true, "the statement is not sent yet": false} {
		for _, end := range []error{nil, errBusiness, idem.Reject(ok)} {
			t.Run(fmt.Sprint(name, "/", end), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				lock := l.begin(ctx)
				if _, err := lock.Exec(ctx, "select pg_advisory_xact_lock(42)"); err != nil {
					t.Fatal(err)
				}
				tx, late, stray := l.begin(ctx), newLateArgument(), make(chan error, 1)
				_, err := idem.DoTx(ctx, tx, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
					go func() {
						_, err := tx.Exec(ctx, "select 'stray' from pg_advisory_xact_lock(42)", late)
						stray <- err
					}()
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
