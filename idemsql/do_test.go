package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestDo_ExecutesOnceAndReplaysTheSameBytes(t *testing.T) {
	withEachDB(t, 4, func(t *testing.T, s *shop, _ dbKind) {
		first, err := idemsql.Do(t.Context(), s.db, scope, "k", hashA, s.charge("k"))
		if err != nil || first.Replayed || first.Status != 201 {
			t.Fatalf("%+v, %v", first, err)
		}
		again, err := idemsql.Do(t.Context(), s.db, scope, "k", hashA, s.charge("k"))
		first.Replayed = true
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if s.runs.Load() != 1 {
			t.Errorf("fn ran %d times", s.runs.Load())
		}
		s.wantOnce("k")
		if err := s.db.PingContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDo_RoundTripsOfAFirstRun(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, way dbKind) {
		for _, key := range []string{"warm", "warm"} {
			if err := s.do(key, s.charge(key)); err != nil {
				t.Fatal(err)
			}
		}
		for statements := range 4 {
			write := func(tx *sql.Tx) (idem.Response, error) {
				for range statements {
					if _, err := tx.Exec("insert into ledger (key) values ('x')"); err != nil {
						return idem.Response{}, err
					}
				}
				return ok, nil
			}
			var got, plain int
			for try := range 5 { // the server may replan a statement, which costs pgx a round trip
				plain = s.trips(func() error { return s.plain(write) })
				got = s.trips(func() error { return s.do(fmt.Sprint("k", statements, try), write) })
				if got == statements+way.trips && got == plain+way.trips-2 {
					break
				}
			}
			if got != statements+way.trips || got != plain+way.trips-2 {
				t.Errorf("%d statements: %d round trips, the plain transaction has %d", statements, got, plain)
			}
		}
	})
}

// trips counts the round trips of f, including those in the background.
func (s *shop) trips(f func() error) int {
	s.Helper()
	s.wantNoneInUse()
	s.proxy.ResetTally()
	if err := f(); err != nil {
		s.Error(err)
	}
	s.wantNoneInUse()
	return s.proxy.ResetTally().Turns
}

// plain runs fn in a plain transaction.
func (s *shop) plain(fn func(*sql.Tx) (idem.Response, error)) error {
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestDo_CommitsNothingIfFnEndsItsTransaction(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
			for how, returned := range map[string]error{"": nil, ", with Reject": idem.Reject(ok)} {
				key := name + how
				err := s.do(key, func(tx *sql.Tx) (idem.Response, error) {
					_, err := s.charge(key)(tx)
					if ended := end(tx); ended == nil {
						t.Errorf("%s succeeded", key)
					}
					return ok, errors.Join(err, returned)
				})
				if !errors.Is(err, idem.ErrTxEnded) {
					t.Errorf("%s: err = %v, want ErrTxEnded", key, err)
				}
				s.wantNone(key)
				s.wantFree(key)
			}
		}
	})
}

func TestDo_CommitsNothingIfFnLeavesRowsOrErrors(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		for name, leak := range map[string]func(*sql.Tx){
			"rows": func(tx *sql.Tx) {
				rows, err := tx.Query("select * from generate_series(1, 1000000)")
				if err != nil || !rows.Next() {
					t.Error(err, rows.Err())
				}
			},
			"rows of pgx": func(tx *sql.Tx) {
				own, err := idemsql.Tx(t.Context(), tx)
				if err != nil {
					t.Error(err)
					return
				}
				own.Query(t.Context(), "select * from generate_series(1, 100000)")
			},
			"statement": func(tx *sql.Tx) {
				go tx.Exec("select pg_sleep(3600)")
				s.awaitTrue("select count(*) = 1 from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(3600)' and state = 'active'")
			},
			"ignored error": func(tx *sql.Tx) { tx.Exec("select 1/0") },
		} {
			err := s.do(name, func(tx *sql.Tx) (idem.Response, error) {
				_, err := s.charge(name)(tx)
				leak(tx)
				return ok, err
			})
			if !errors.Is(err, idem.ErrTxAborted) {
				t.Errorf("%s: err = %v", name, err)
			}
			s.pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(3600)'")
			s.wantFree(name)
		}
	})
}

func (s *shop) awaitTrue(sql string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for yes := false; !yes; {
		if err := s.pool.QueryRow(ctx, sql).Scan(&yes); err != nil {
			s.Fatalf("waiting for %s: %v", sql, err)
		}
	}
}

// database/sql rolls a transaction back in a goroutine of its own when the context of the
// transaction ends. The context of a transaction of Do does not end with the caller's.
func TestDo_CanceledContextRollsBackAfterFnReturns(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		for i := range 3 {
			key := fmt.Sprint("k", i)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 2 { // the context of the second call has ended before it begins
				_, err := idemsql.Do(ctx, s.db, scope, key, hashA, func(tx *sql.Tx) (idem.Response, error) {
					cancel()
					return s.charge(key)(tx)
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("err = %v", err)
				}
			}
			s.wantNone(key)
			s.wantFree(key)
		}
	})
}

func TestDo_UsesTheIsolationLevelOfItsOption(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		for _, level := range []pgx.TxIsoLevel{"", pgx.RepeatableRead, pgx.Serializable} {
			want := string(level)
			if want == "" {
				want = "read committed"
			}
			err := s.do("k"+want, func(tx *sql.Tx) (idem.Response, error) {
				var got string
				err := tx.QueryRow("show transaction_isolation").Scan(&got)
				if got != want {
					t.Errorf("the transaction is %q, want %q", got, want)
				}
				return ok, err
			}, idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}))
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDo_PreparedStatementWorksInFn(t *testing.T) {
	withEachDB(t, 2, func(t *testing.T, s *shop, _ dbKind) {
		stmt, err := s.db.Prepare("insert into ledger (key) values ($1)")
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		for i := range 3 {
			key := fmt.Sprint("k", i)
			if err := s.do(key, func(tx *sql.Tx) (idem.Response, error) {
				_, err := tx.Stmt(stmt).Exec(key)
				return ok, err
			}); err != nil {
				t.Error(err)
			}
			if s.entries(key) != 1 || s.records(key) != 1 {
				t.Errorf("%d effects, %d records", s.entries(key), s.records(key))
			}
		}
	})
}

func TestDo_ReplacesDeadConnections(t *testing.T) {
	withEachDB(t, 3, func(t *testing.T, s *shop, _ dbKind) {
		if err := s.do("warm", s.charge("warm")); err != nil {
			t.Fatal(err)
		}
		s.wantNoneInUse()
		if _, err := s.pool.Exec(t.Context(), `select pg_terminate_backend(pid, 30000) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`); err != nil {
			t.Fatal(err)
		}
		if err := s.do("k", s.charge("k"), idem.WithRetries(0)); err != nil {
			t.Error(err)
		}
		s.wantOnce("k")
	})
}

func TestDoJSON_ReplaysTheSameValue(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		type order struct{ ID int64 }
		place := func() (order, idem.Result, error) {
			return idemsql.DoJSON(t.Context(), s.db, scope, "k", hashA, func(tx *sql.Tx) (o order, err error) {
				err = tx.QueryRow("insert into ledger (key) values ('k') returning id").Scan(&o.ID)
				return o, err
			})
		}
		first, _, err := place()
		again, res, errAgain := place()
		if err != nil || errAgain != nil || first != again || !res.Replayed || s.entries("k") != 1 {
			t.Errorf("%+v, %v; %+v, %v, %+v", first, err, again, errAgain, res)
		}
	})
}

func TestOpenDB_CloseLeavesThePoolOpen(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	db := idemsql.OpenDB(pool)
	if _, err := idemsql.Do(t.Context(), db, scope, "k", hashA, func(*sql.Tx) (idem.Response, error) { return ok, nil }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := idemsql.Do(t.Context(), db, scope, "k", hashA, func(*sql.Tx) (idem.Response, error) { return ok, nil }); err == nil {
		t.Error("a *sql.DB that was closed serves calls")
	}
}

func TestDo_RefusesNilArguments(t *testing.T) {
	t.Parallel()
	never := func(*sql.Tx) (idem.Response, error) { t.Error("called"); return ok, nil }
	if _, err := idemsql.Do(t.Context(), nil, scope, "k", hashA, never); err == nil {
		t.Error("no *sql.DB, no error")
	}
	if _, err := idemsql.Do(t.Context(), idemsql.OpenDB(pgtest.New(t)), scope, "k", hashA, nil); err == nil {
		t.Error("no fn, no error")
	}
	if _, err := idemsql.DoTx(t.Context(), nil, scope, "k", hashA, never); err == nil {
		t.Error("no *sql.Tx, no error")
	}
	if _, err := idemsql.Tx(t.Context(), nil); err == nil {
		t.Error("no *sql.Tx, no error")
	}
}
