package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

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
					var pgErr *pgconn.PgError
					isPg := errors.As(err, &pgErr)
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
			if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err == nil || l.runs.Load() != 0 {
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

// An ended transaction still refers to its connection, which another caller may be using by now.
func TestJoinedCallOnAnEndedTransactionNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, ended := range map[string]func(*ledger) pgx.Tx{
		"committed":   func(l *ledger) pgx.Tx { tx := l.begin(ctx); tx.Commit(ctx); return tx },
		"rolled back": func(l *ledger) pgx.Tx { tx := l.begin(ctx); tx.Rollback(ctx); return tx },
		"kept from fn": func(l *ledger) (kept pgx.Tx) {
			idemDo(ctx, l.pool, scope, "keep", hashA, func(tx pgx.Tx) (idem.Response, error) { kept = tx; return ok, nil })
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
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "25006" {
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

// While a migration holds a lock on the table, a call cannot prepare its statements or make a new
// plan. The call fails without a claim of the key, and the caller's transaction continues.
func TestJoinedCallThatCannotPrepareLeavesTheCallersTransactionAsItWas(t *testing.T) {
	t.Parallel()
	for name, warm := range map[string]bool{"a new connection": false, "a plan that is due": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := newLedger(t)
			pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), func(config *pgxpool.Config) {
				config.ConnConfig.RuntimeParams["lock_timeout"] = "50ms"
			})
			if warm {
				tx := must(pool.Begin(ctx))
				if _, err := idem.DoTx(ctx, tx, scope, "warm", hashA, answer(ok)); err != nil {
					t.Fatal(err)
				}
				if err := tx.Commit(ctx); err != nil {
					t.Fatal(err)
				}
				awaitDue(t, pool)
			}
			tx := must(pool.Begin(ctx))
			defer tx.Rollback(ctx)
			if err := note(ctx, tx, "before"); err != nil {
				t.Fatal(err)
			}
			unlock := lockRecords(t, l.pool)
			_, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
			if cause := idem.CauseOf(err); errors.Is(err, idem.ErrInProgress) || cause != idem.CauseLockTimeout || !idem.Retryable(err) {
				t.Errorf("err = %v, of cause %q", err, cause)
			}
			unlock()
			if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); err != nil {
				t.Errorf("once the table is free: %v", err)
			}
			if err := errors.Join(note(ctx, tx, "after"), tx.Commit(ctx)); err != nil {
				t.Fatal(err)
			}
			l.wantCommitted("before", "k", "after")
			l.wantOnce("k")
		})
	}
}
