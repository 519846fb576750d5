package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

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
			res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
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

// A violated constraint can be a reason to reject. The failed statement is undone like the rest.
func TestRejectAfterASQLErrorIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	fn := oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		_, err := tx.Exec(ctx, "insert into ledger (key) values (null)")
		if err == nil {
			t.Error("the statement did not fail")
		}
		return idem.Response{}, fmt.Errorf("declined because of %v: %w", err, idem.Reject(ok))
	})
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, fn)
	if err != nil || !first.Rejected || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	if diff := cmp.Diff(ok, first.Response); diff != "" {
		t.Error(diff)
	}
	second, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
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
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, own = tx.Exec(ctx, "insert into idem.records select * from idem.records")
		return ok, own
	})
	if err != own {
		t.Errorf("err = %v, want fn's own %v", err, own)
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23505" {
		t.Errorf("err = %v", err)
	}
	l.wantFree("k")
}

// A constraint that is checked at COMMIT fails like a statement of fn: the call returns the
// server's error, and nothing is committed.
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
				res, err := idemDo(ctx, l.pool, scope, test.name, hashA, func(tx pgx.Tx) (idem.Response, error) {
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
		idemDo(ctx, l.pool, scope, call.payload, hashA, func(tx pgx.Tx) (idem.Response, error) {
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
