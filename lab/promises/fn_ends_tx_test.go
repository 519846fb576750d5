package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// These tests check what fn may do to its transaction. Most of them use a pool of one connection,
// so that the next call gets the connection that fn has used.

// serializationFailure makes idem rerun the transaction, unless fn has ended the transaction
// itself.
var serializationFailure = &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "could not serialize access"}

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
			res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
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
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// rawEnds are SQL statements by which fn can end its transaction without the knowledge of idem.
// Each says whether it keeps fn's writes.
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

// returnsAfterEnd are return values of fn after it has ended its transaction with a statement.
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
				res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// wantRefusedUntilExpiry fails the test unless the effect of key is committed without a response,
// and a call for key returns an error that says so.
func (l *ledger) wantRefusedUntilExpiry(key string) {
	l.t.Helper()
	ctx := context.Background()
	before := l.runs.Load()
	for range 2 {
		res, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
		if !errors.Is(err, idem.ErrTxEnded) || idem.Retryable(err) || res.Body != nil {
			l.t.Errorf("the next call answers %+v, %v; want ErrTxEnded", res, err)
		}
		if _, err := idemDo(ctx, l.pool, scope, key, hashB, l.charge(key)); !errors.Is(err, idem.ErrMismatch) {
			l.t.Errorf("the next call with another hash answers %v", err)
		}
	}
	if l.runs.Load() != before {
		l.t.Error("fn was executed again")
	}
	l.wantOnce(key)
	l.expire(key)
	res, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
	if err != nil || res.Replayed {
		l.t.Errorf("once expired, the key answers %+v, %v", res, err)
	}
	if l.entries(key) != 2 {
		l.t.Errorf("%d effects", l.entries(key))
	}
}

// After a ROLLBACK by fn, each further statement of fn commits by itself. An error must not claim
// that fn's writes were undone, and no answer may claim that they have a stored response.
func TestWritesAfterARollbackBySQLAreReportedNotHidden(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, begin := range []string{"", "begin"} {
		for _, returned := range returnsAfterEnd {
			name := begin + " returns " + returned.name
			t.Run(name, func(t *testing.T) {
				runs := 0
				_, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// If the transaction that fn has begun itself has failed, idem cannot query it for its claim.
func TestEndingTheTransactionBySQLIsFoundOutEvenIfTheNextOneIsAborted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// When fn fails, idem queries the server. If the server cannot answer, the call still returns fn's
// own error.
func TestFailureOfFnIsItsOwnEvenIfTheServerCannotBeAskedAnyMore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, other := ledgerOn(t, pgtest.Open(t, dsn, maxConns(1))), pgtest.Open(t, dsn)
	role := fmt.Sprintf("idem_none_%08x", rand.Uint32()) // roles belong to the whole server, and this test may run twice at once
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
			res, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// The statement needs max_prepared_transactions > 0. With 0, the statement fails, and fn ignores
// the error.
func TestPrepareTransactionIsNeverASuccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		tx.Exec(ctx, "prepare transaction 'idem'")
		return ok, nil
	})
	if !errors.Is(err, idem.ErrTxEnded) && !errors.Is(err, idem.ErrTxAborted) {
		t.Errorf("err = %v", err)
	}
	l.pool.Exec(ctx, "rollback prepared 'idem'")
	l.wantFree("k")
}
