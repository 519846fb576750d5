package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// saved is how many calls of one transaction have a savepoint of their own. As many calls have an
// advisory lock.
const saved = 32

// locksOf counts the locks of a backend.
func (l *ledger) locksOf(conn *pgx.Conn) int {
	l.t.Helper()
	return l.count("select count(*) from pg_locks where pid = $1", conn.PgConn().PID())
}

// subtransactions counts the transactions and subtransactions that have written the records.
func (l *ledger) subtransactions() int {
	l.t.Helper()
	return l.count("select count(distinct xmin::text) from idem.records")
}

// The server's lock table has room for a few thousand locks. A client that fills it blocks all
// others.
func TestThousandsOfKeysInOneTransactionLeaveTheServerToOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := 5_000
	if testing.Short() {
		n = 1_000
	}
	l := newLedger(t)
	tx := l.begin(ctx)
	for i := range n {
		if _, err := idem.DoTx(ctx, tx, scope, fmt.Sprint("k", i), hashA, answer(ok)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if locks := l.locksOf(tx.Conn()); locks > 3*saved {
		t.Errorf("%d locks for %d keys", locks, n)
	}
	// Other clients can connect and take locks. A call for one of the keys returns ErrInProgress at
	// once.
	other := pgtest.Open(t, l.pool.Config().ConnString())
	if _, err := idemDo(ctx, other, scope, "another", hashA, l.charge("another")); err != nil {
		t.Error(err)
	}
	for _, i := range []int{0, saved - 1, saved, n / 2, n - 1} {
		key := fmt.Sprint("k", i)
		if _, err := idemDo(ctx, other, scope, key, hashA, answer(ok), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("Do %s: err = %v", key, err)
		}
		err := pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
			if _, err := idem.DoTx(ctx, tx, scope, key, hashA, answer(ok)); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("DoTx %s: err = %v", key, err)
			}
			return note(ctx, tx, "usable after "+key)
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := l.count("select count(*) from idem.records where key like 'k%' and state = 'completed'"); got != n {
		t.Errorf("%d records", got)
	}
	if got := l.subtransactions(); got > saved+2 {
		t.Errorf("%d subtransactions for %d keys", got, n)
	}
	if res, err := idemDo(ctx, other, scope, fmt.Sprint("k", n-1), hashA, answer(ok)); err != nil || !res.Replayed {
		t.Errorf("%+v, %v", res, err)
	}
}

// Like first runs, a batch of replayed or expired keys takes few locks.
func TestReplaysAndTakeoversInOneTransactionKeepFewLocks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const n = 10 * saved
	for name, expired := range map[string]bool{"recorded": false, "expired": true} {
		for _, savepoints := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/savepoints %v", name, savepoints), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				l.seed(n, "old")
				if expired {
					if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = clock_timestamp()"); err != nil {
						t.Fatal(err)
					}
				}
				tx := l.begin(ctx)
				if _, err := tx.Exec(ctx, "savepoint before"); err != nil {
					t.Fatal(err)
				}
				past(t, ctx, tx)
				if _, err := tx.Exec(ctx, "rollback to before"); err != nil { // also undoes the count of the locks
					t.Fatal(err)
				}
				for i := range n {
					call := func(tx pgx.Tx) error {
						res, err := idem.DoTx(ctx, tx, scope, fmt.Sprint("old-", i+1), idem.Hash{1}, answer(ok))
						if !expired && errors.Is(err, idem.ErrMismatch) || err == nil && res.Replayed != expired {
							return nil
						}
						return fmt.Errorf("%d: %+v, %w", i, res, err)
					}
					var err error
					if savepoints {
						err = pgx.BeginFunc(ctx, tx, call)
					} else {
						err = call(tx)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if locks := l.count("select count(*) from pg_locks where locktype = 'advisory' and pid = $1", tx.Conn().PgConn().PID()); locks > saved {
					t.Errorf("%d locks for %d keys", locks, n)
				}
				if err := tx.Commit(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// With a savepoint of the caller around each, any number of calls is independent, and takes no more
// locks.
func TestManyKeysInOneTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			const n = 300
			err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				for i := range n {
					key := fmt.Sprint("k", i)
					fn, want := l.charge(key), error(nil)
					if i%3 == 2 {
						want = errBusiness
						fn = func(tx pgx.Tx) (idem.Response, error) { l.charge(key)(tx); return ok, errBusiness }
					}
					err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
						res, err := idem.DoTx(ctx, savepoint, scope, key, hashA, fn)
						if !errors.Is(err, want) || res.Replayed {
							t.Errorf("%s: %+v, %v", key, res, err)
						}
						return err
					})
					if !errors.Is(err, want) {
						return err
					}
				}
				if locks := l.count("select count(*) from pg_locks where locktype = 'advisory' and pid = $1", tx.Conn().PgConn().PID()); locks > saved {
					t.Errorf("%d locks for %d keys", locks, n)
				}
				for i := range n {
					if key := fmt.Sprint("k", i); i%3 != 2 {
						if res, err := idem.DoTx(ctx, tx, scope, key, hashA, l.charge(key)); err != nil || !res.Replayed {
							t.Errorf("%s again: %+v, %v", key, res, err)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if key := fmt.Sprint("k", i); i%3 == 2 {
					l.wantNone(key)
				} else {
					l.wantOnce(key)
				}
			}
		})
	}
}

// past makes calls in tx until further calls have no savepoint.
func past(t *testing.T, ctx context.Context, tx pgx.Tx) {
	t.Helper()
	for i := range saved {
		if _, err := idem.DoTx(ctx, tx, scope, fmt.Sprint("past", i), hashA, answer(ok)); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed call without a savepoint cannot be undone alone. Its writes must not be committed
// either.
func TestFailurePastTheSavepointsAbortsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, fail := range map[string]struct {
		fn   func(*ledger) func(pgx.Tx) (idem.Response, error)
		want error
	}{
		"fn fails": {func(l *ledger) func(pgx.Tx) (idem.Response, error) {
			return func(tx pgx.Tx) (idem.Response, error) { l.charge("k")(tx); return ok, errBusiness }
		}, errBusiness},
		"fn rejects": {func(l *ledger) func(pgx.Tx) (idem.Response, error) {
			return func(tx pgx.Tx) (idem.Response, error) {
				l.charge("k")(tx)
				return ok, idem.Reject(idem.Response{Status: 402})
			}
		}, idem.ErrTxAborted},
		"the response is too large": {func(l *ledger) func(pgx.Tx) (idem.Response, error) {
			return func(tx pgx.Tx) (idem.Response, error) {
				l.charge("k")(tx)
				return idem.Response{Body: make([]byte, 2<<20)}, nil
			}
		}, idem.ErrResponseTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			tx := l.begin(ctx)
			past(t, ctx, tx)
			_, err := idem.DoTx(ctx, tx, scope, "k", hashA, fail.fn(l))
			if !errors.Is(err, fail.want) || idem.Retryable(err) {
				t.Errorf("err = %v", err)
			}
			if errors.Is(err, idem.ErrTxAborted) && !containsAll(err.Error(), "savepoint", "tx.Begin") {
				t.Errorf("the remedy is missing: %v", err)
			}
			if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
				t.Errorf("COMMIT: %v", err)
			}
			l.wantNone("k")
			l.wantNone("past0")
		})
	}
}

// A key in progress elsewhere does not fail the transaction, with or without a savepoint.
func TestRefusalPastTheSavepointsSparesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			if _, err := idemDo(ctx, l.pool, scope, "recorded", hashA, l.charge("recorded")); err != nil {
				t.Fatal(err)
			}
			other := l.begin(ctx)
			if _, err := idem.DoTx(ctx, other, scope, "held", hashA, l.charge("held")); err != nil {
				t.Fatal(err)
			}
			err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "set local lock_timeout = '7s'"); err != nil {
					return err
				}
				past(t, ctx, tx)
				if res, err := idem.DoTx(ctx, tx, scope, "recorded", hashA, l.charge("recorded")); err != nil || !res.Replayed {
					t.Errorf("%+v, %v", res, err)
				}
				if _, err := idem.DoTx(ctx, tx, scope, "recorded", hashB, l.charge("recorded")); !errors.Is(err, idem.ErrMismatch) {
					t.Errorf("err = %v", err)
				}
				if _, err := idem.DoTx(ctx, tx, scope, "held", hashA, l.charge("held")); !errors.Is(err, idem.ErrInProgress) {
					t.Errorf("err = %v", err)
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
			if err != nil {
				t.Error(err)
			}
			l.wantOnce("mine")
		})
	}
}

// If a key is held without an advisory lock, a call only learns that by waiting until a timeout.
// Without a savepoint, that aborts the transaction.
func TestKeyHeldWithoutALockIsInProgressPastTheSavepoints(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	batch := l.begin(ctx)
	past(t, ctx, batch)
	if _, err := idem.DoTx(ctx, batch, scope, "held", hashA, l.charge("held")); err != nil {
		t.Fatal(err)
	}
	tx := l.begin(ctx)
	for i := range saved {
		if _, err := idem.DoTx(ctx, tx, scope, fmt.Sprint("other", i), hashA, answer(ok)); err != nil {
			t.Fatal(err)
		}
	}
	err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		if _, err := idem.DoTx(ctx, savepoint, scope, "held", hashA, l.charge("held")); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("under a savepoint: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := idem.DoTx(ctx, tx, scope, "held", hashA, l.charge("held")); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("without one: %v", err)
	}
	if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("COMMIT: %v", err)
	}
	l.wantNone("other0")
}

// A failed statement in a savepoint of the caller leaves the outer transaction unchanged.
func TestSavepointsOfTheCallersKeepCallsApartPastTheSavepoints(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		past(t, ctx, tx)
		for i, fn := range []func(pgx.Tx) (idem.Response, error){
			func(tx pgx.Tx) (idem.Response, error) { l.charge("failed")(tx); return ok, errBusiness },
			func(tx pgx.Tx) (idem.Response, error) {
				_, err := tx.Exec(ctx, "select 1/0")
				return ok, err
			},
		} {
			err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
				_, err := idem.DoTx(ctx, savepoint, scope, "failed", hashA, fn)
				return err
			})
			var pgErr *pgconn.PgError
			if !errors.Is(err, errBusiness) && !errors.As(err, &pgErr) {
				t.Errorf("%d: err = %v", i, err)
			}
		}
		return pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			res, err := idem.DoTx(ctx, savepoint, scope, "rejected", hashA, func(tx pgx.Tx) (idem.Response, error) {
				l.charge("rejected")(tx)
				return ok, idem.Reject(idem.Response{Status: 402})
			})
			if !res.Rejected {
				t.Errorf("%+v", res)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantNone("failed")
	if l.entries("rejected") != 0 || l.records("rejected") != 1 || l.records("past0") != 1 {
		t.Error("the calls were not kept apart")
	}
}
