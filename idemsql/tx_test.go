package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

// begin begins a transaction of the caller, which is rolled back at the end of the test.
func (s *shop) begin(ctx context.Context) *sql.Tx {
	s.Helper()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		s.Fatal(err)
	}
	return tx
}

func TestDoTx_CommitsWithTheCallersTransaction(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		for _, commits := range []bool{false, true} {
			tx := s.begin(t.Context())
			res, err := idemsql.DoTx(t.Context(), tx, scope, "k", hashA, s.charge("k"))
			if err != nil || res.Replayed {
				t.Fatal(res, err)
			}
			again, err := idemsql.DoTx(t.Context(), tx, scope, "k", hashA, s.charge("k"))
			if err != nil || !again.Replayed || string(again.Body) != string(res.Body) {
				t.Errorf("%+v, %v", again, err)
			}
			if !commits {
				tx.Rollback()
				s.wantNone("k")
				continue
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			s.wantOnce("k")
		}
	})
}

func TestDoTx_FailureLeavesTheTransactionUnchanged(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		tx := s.begin(t.Context())
		if _, err := tx.Exec("insert into ledger (key) values ('before')"); err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]func(*sql.Tx) error{
			"error":    func(*sql.Tx) error { return errBusiness },
			"ignored":  func(tx *sql.Tx) error { tx.Exec("select 1/0"); return nil },
			"failed":   func(tx *sql.Tx) error { _, err := tx.Exec("select 1/0"); return err },
			"rejected": func(*sql.Tx) error { return idem.Reject(idem.Response{Status: 402}) },
			"panic":    func(*sql.Tx) error { panic("fn") },
		} {
			var res idem.Result
			var err error
			recovered, _ := escape(t, func() {
				res, err = idemsql.DoTx(t.Context(), tx, scope, name, hashA, func(tx *sql.Tx) (idem.Response, error) {
					resp, err := s.charge(name)(tx)
					return resp, errors.Join(err, end(tx))
				})
			})
			if (recovered == "fn") != (name == "panic") || res.Rejected != (name == "rejected") || name == "ignored" && !errors.Is(err, idem.ErrTxAborted) ||
				(err == nil) != (name == "panic" || name == "rejected") {
				t.Errorf("%s: recovered %v; %+v, %v", name, recovered, res, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		if all, records := s.count("select count(*) from ledger"), s.count("select count(*) from idem.records"); all != 1 || records != 1 {
			t.Errorf("%d effects and %d records, want that of the caller and the rejection", all, records)
		}
	})
}

func TestDoTx_DetectsThatFnEndedTheTransaction(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, way dbKind) {
		for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
			tx := s.begin(t.Context())
			_, err := idemsql.DoTx(t.Context(), tx, scope, name, hashA, func(tx *sql.Tx) (idem.Response, error) {
				resp, err := s.charge(name)(tx)
				end(tx)
				return resp, err
			})
			if !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("%s: err = %v", name, err)
			}
			if name == "Rollback" || way.name == "OpenDB" {
				s.wantNone(name)
			}
			s.wantNoneInUse()
		}
	})
}

// The context of the caller's transaction may end at any moment. database/sql then rolls back in a
// goroutine of its own.
func TestDoTx_CanceledContextCommitsNothing(t *testing.T) {
	withEachDB(t, 2, func(t *testing.T, s *shop, _ dbKind) {
		for i := range 30 {
			key := fmt.Sprint("k", i)
			ctx, cancel := context.WithCancel(t.Context())
			tx := s.begin(ctx)
			var group sync.WaitGroup
			group.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				cancel()
			})
			_, err := idemsql.DoTx(context.Background(), tx, scope, key, hashA, func(tx *sql.Tx) (idem.Response, error) {
				resp, err := s.charge(key)(tx)
				if i%2 == 0 {
					<-ctx.Done()
				}
				return resp, err
			})
			switch {
			case err != nil:
				tx.Rollback()
				s.wantNoneInUse()
				s.wantNone(key)
			case tx.Commit() == nil:
				s.wantOnce(key)
			case i%2 == 0: // the context ended before COMMIT
				s.wantNoneInUse()
				s.wantNone(key)
			default: // a COMMIT that was interrupted may have happened; database/sql does not find out
				s.wantNoneInUse()
				s.wantWhole(key)
			}
			cancel()
			group.Wait()
		}
	})
}

// DoTx reports the cancellation to a canceled caller, not an error of fn.
func TestDoTx_CanceledContextIsNotAFaultOfFn(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tx := s.begin(ctx)
		_, err := idemsql.DoTx(ctx, tx, scope, "k", hashA, func(tx *sql.Tx) (idem.Response, error) {
			resp, err := s.charge("k")(tx)
			cancel()
			for { // until database/sql has rolled back
				if _, done := tx.Exec("select 1"); errors.Is(done, sql.ErrTxDone) {
					return resp, err
				}
			}
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, idem.ErrTxEnded) {
			t.Errorf("err = %v", err)
		}
		s.wantNoneInUse()
		s.wantNone("k")
	})
}

func TestTx_CarriesMessagesOperationsAndInboxes(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		checkout := operation.Define("checkout", func(*operation.Op, string) (idem.Response, error) { return ok, nil })
		use := func(key string, tx *sql.Tx) {
			own, err := idemsql.Tx(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			if err := outbox.Add(t.Context(), own, outbox.Message{Topic: "orders", Key: key}); err != nil {
				t.Error(err)
			}
			if _, err := checkout.Start(t.Context(), own, scope, "operation of "+key, hashA, "input"); err != nil {
				t.Error(err)
			}
			outcome, err := inbox.HandleTx(t.Context(), own, "consumer", inbox.Message{Source: "orders", ID: key}, func(pgx.Tx) error {
				_, err := tx.Exec("insert into ledger (key) values ($1)", key) // through database/sql, inside a function that uses the pgx.Tx
				return err
			})
			if err != nil || outcome.State != inbox.Done {
				t.Errorf("%+v, %v", outcome, err)
			}
			var n int
			if err := own.QueryRow(t.Context(), "select count(*) from ledger where key = $1", key).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d effects are seen, %v", n, err)
			}
		}
		want := func(key string, n int) {
			t.Helper()
			messages := s.count("select count(*) from idem.outbox where aggregateid = $1", key)
			operations := s.count("select count(*) from idem.records where key = $1", "operation of "+key)
			handled := s.count("select count(*) from idem.inbox where id = $1", key)
			if messages != n || operations != n || handled != n || s.entries(key) != n {
				t.Errorf("%s: %d messages, %d operations, %d handled, %d effects, want %d of each", key, messages, operations, handled, s.entries(key), n)
			}
		}
		for _, end := range []error{errBusiness, nil} {
			err := s.do("Do", func(tx *sql.Tx) (idem.Response, error) { use("Do", tx); return ok, end })
			if err != end {
				t.Error(err)
			}
			if end != nil {
				want("Do", 0)
			}
		}
		want("Do", 1)
		tx := s.begin(t.Context())
		use("own", tx)
		if _, err := idemsql.DoTx(t.Context(), tx, scope, "DoTx", hashA, func(tx *sql.Tx) (idem.Response, error) { use("DoTx", tx); return ok, nil }); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		want("own", 1)
		want("DoTx", 1)
	})
}

func TestTx_ExecutionIDIsKnownOnlyInsideFn(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		id := func(tx *sql.Tx) string {
			own, err := idemsql.Tx(t.Context(), tx)
			if err != nil {
				t.Error(err)
			}
			known, _ := idem.ExecutionID(own)
			return known
		}
		var inner, joined string
		var of idem.Result
		res, err := idemsql.Do(t.Context(), s.db, scope, "k", hashA, func(tx *sql.Tx) (idem.Response, error) {
			var err error
			of, err = idemsql.DoTx(t.Context(), tx, scope, "joined", hashA, func(tx *sql.Tx) (idem.Response, error) {
				joined = id(tx)
				return ok, nil
			})
			inner = id(tx)
			return ok, err
		})
		if err != nil || inner != res.ExecutionID || joined != of.ExecutionID || inner == joined {
			t.Errorf("%v: %q of %q, %q of %q", err, inner, res.ExecutionID, joined, of.ExecutionID)
		}
		tx := s.begin(t.Context())
		if known := id(tx); known != "" {
			t.Errorf("a transaction of the caller's has the id %q", known)
		}
		tx.Rollback()
		if _, err := idemsql.Tx(t.Context(), tx); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("a transaction that is over: %v", err)
		}
	})
}

func TestTx_CopyFromBatchesAndSavepoints(t *testing.T) {
	withEachDB(t, 1, func(t *testing.T, s *shop, _ dbKind) {
		ctx := t.Context()
		tx := s.begin(ctx)
		own, err := idemsql.Tx(ctx, tx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := own.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}})); err != nil {
			t.Error(err)
		}
		savepoint, err := own.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		batch := &pgx.Batch{}
		batch.Queue("delete from ledger")
		if err := savepoint.SendBatch(ctx, batch).Close(); err != nil {
			t.Error(err)
		}
		if err := savepoint.Rollback(ctx); err != nil {
			t.Error(err)
		}
		rows, _ := own.Query(ctx, "select key from ledger order by id")
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(keys) != 2 {
			t.Errorf("%q, %v", keys, err)
		}
		if own.Commit(ctx) == nil || own.Rollback(ctx) == nil {
			t.Error("the pgx.Tx ends the *sql.Tx")
		}
		if err := tx.Commit(); err != nil || s.entries("a") != 1 {
			t.Error(err)
		}
	})
}

// foreign is a driver that is not pgx's. It counts its calls.
type foreign struct{ asked *int }

func (f foreign) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f foreign) Driver() driver.Driver                        { return f }
func (f foreign) Open(string) (driver.Conn, error)             { return f, nil }
func (f foreign) Close() error                                 { return nil }
func (f foreign) Begin() (driver.Tx, error)                    { *f.asked++; return f, nil }
func (f foreign) Commit() error                                { return nil }
func (f foreign) Rollback() error                              { return nil }
func (f foreign) Prepare(string) (driver.Stmt, error)          { *f.asked++; return nil, errors.New("no") }
func (f foreign) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	*f.asked++
	return driver.ResultNoRows, nil
}

func TestDo_RefusesADriverThatIsNotPgx(t *testing.T) {
	t.Parallel()
	var asked int
	db := sql.OpenDB(foreign{&asked})
	defer db.Close()
	never := func(*sql.Tx) (idem.Response, error) { t.Error("called"); return ok, nil }
	if _, err := idemsql.Do(t.Context(), db, scope, "k", hashA, never); !errors.Is(err, idemsql.ErrDriver) || idem.Retryable(err) {
		t.Errorf("Do: %v", err)
	}
	_, _, err := idemsql.DoJSON(t.Context(), db, scope, "k", hashA, func(*sql.Tx) (int, error) { t.Error("called"); return 0, nil })
	if !errors.Is(err, idemsql.ErrDriver) {
		t.Errorf("DoJSON: %v", err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	asked = 0
	if _, err := idemsql.DoTx(t.Context(), tx, scope, "k", hashA, never); !errors.Is(err, idemsql.ErrDriver) {
		t.Errorf("DoTx: %v", err)
	}
	if _, err := idemsql.Tx(t.Context(), tx); !errors.Is(err, idemsql.ErrDriver) {
		t.Errorf("Tx: %v", err)
	}
	tx.Rollback()
	if asked != 0 || db.Stats().InUse != 0 {
		t.Errorf("the driver was asked for %d things, %d connections are in use", asked, db.Stats().InUse)
	}
}
