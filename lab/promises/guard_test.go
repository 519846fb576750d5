package promises_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// txMethods has one use for each method of pgx.Tx that would have a visible effect. A method
// without an error result is used through its result.
var txMethods = map[string]func(context.Context, pgx.Tx) error{
	"Begin":    func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
	"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{"kept"}}))
		return err
	},
	"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("insert into ledger (key) values ('kept')")
		return tx.SendBatch(ctx, batch).Close()
	},
	"LargeObjects": func(ctx context.Context, tx pgx.Tx) error {
		objects := tx.LargeObjects()
		_, err := objects.Create(ctx, 0)
		return err
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "kept", "select 1"); return err },
	"Exec": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into ledger (key) values ('kept')")
		return err
	},
	"Query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "insert into ledger (key) values ('kept') returning id")
		for rows.Next() {
			err = errors.New("Query returned a row")
		}
		return errors.Join(err, rows.Err())
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
		var id int64
		return tx.QueryRow(ctx, "insert into ledger (key) values ('kept') returning id").Scan(&id)
	},
	"Conn": func(_ context.Context, tx pgx.Tx) error {
		if conn := tx.Conn(); conn != nil {
			return errors.New("Conn returned the connection")
		}
		return pgx.ErrTxClosed
	},
}

// pgx adds methods to Tx in minor releases. A method that is not in the table would bypass the
// guard.
func TestEveryMethodOfTxIsGuarded(t *testing.T) {
	t.Parallel()
	for method := range reflect.TypeFor[pgx.Tx]().Methods() {
		if txMethods[method.Name] == nil {
			t.Errorf("pgx.Tx has a method %s that is in no test: guard it in guard.go, and add it here", method.Name)
		}
	}
}

// kept are the transactions that fn has got, by name.
type kept map[string]pgx.Tx

// keep returns a fn that keeps its tx, open and closed savepoints, and their savepoints.
func (k kept) keep(ctx context.Context, t *testing.T, end error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		k["tx"] = tx
		for _, sp := range []struct{ name, of string }{
			{"savepoint", "tx"}, {"nested savepoint", "savepoint"}, {"committed savepoint", "nested savepoint"}, {"undone savepoint", "nested savepoint"},
		} {
			var err error
			if k[sp.name], err = k[sp.of].Begin(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(k["undone savepoint"].Rollback(ctx), k["committed savepoint"].Commit(ctx)); err != nil {
			t.Error(err)
		}
		return ok, end
	}
}

// wantDead fails the test unless every use of the kept transactions returns pgx.ErrTxClosed.
func (k kept) wantDead(ctx context.Context, t *testing.T) {
	t.Helper()
	for name, tx := range k {
		for method, use := range txMethods {
			if err := use(ctx, tx); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s.%s after fn has returned: err = %v, want pgx.ErrTxClosed", name, method, err)
			}
		}
	}
}

func TestTxThatFnKeptIsDeadAndNeverReachesTheNextUserOfTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, end := range map[string]error{"after success": nil, "after an error": errBusiness, "after Reject": idem.Reject(ok)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(1))
			k := kept{}
			idemDo(ctx, l.pool, scope, "k", hashA, k.keep(ctx, t, end))
			waitIdle(t, l.pool)
			k.wantDead(ctx, t) // the connection is idle
			err := pgx.BeginFunc(ctx, l.pool, func(next pgx.Tx) error {
				if _, err := next.Exec(ctx, "insert into ledger (key) values ('next')"); err != nil {
					return err
				}
				k.wantDead(ctx, t) // another transaction uses the connection
				if status := next.Conn().PgConn().TxStatus(); status != 'T' {
					t.Errorf("the next user's transaction is in state %c", status)
				}
				return nil
			})
			if err != nil {
				t.Errorf("the next user's transaction: %v", err)
			}
			if l.entries("next") != 1 || l.entries("kept") != 0 {
				t.Errorf("%d effects of the next user, %d through the kept tx", l.entries("next"), l.entries("kept"))
			}
			l.wantSameConnections(1)
		})
	}
}

func TestTxKeptFromAJoinedCallIsDeadWhileTheCallersTransactionGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for i, end := range []error{nil, errBusiness, idem.Reject(ok)} {
		k := kept{}
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			idem.DoTx(ctx, tx, scope, fmt.Sprint(i), hashA, k.keep(ctx, t, end))
			k.wantDead(ctx, t)
			_, err := tx.Exec(ctx, "insert into ledger (key) values ('next')")
			return err
		})
		if err != nil || l.entries("next") != i+1 || l.entries("kept") != 0 {
			t.Errorf("after %v: %v, %d effects of the caller, %d through the kept tx", end, err, l.entries("next"), l.entries("kept"))
		}
	}
}

func TestTxThatFnKeptIsDeadAfterAPanic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	k := kept{}
	escape(t, func() {
		idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			k.keep(ctx, t, nil)(tx)
			panic(errBusiness)
		})
	})
	waitIdle(t, l.pool)
	k.wantDead(ctx, t)
	l.wantHealthy()
}

// Each run of fn has its own tx. The tx of a rolled back run stays closed during the next run.
func TestTxOfAnEarlierRunIsDeadInTheNext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	var earlier []kept
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		for _, k := range earlier {
			k.wantDead(ctx, t)
		}
		k := kept{}
		resp, err := k.keep(ctx, t, nil)(tx)
		if earlier = append(earlier, k); len(earlier) < 3 {
			return resp, serializationFailure
		}
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		return resp, err
	})
	if err != nil || len(earlier) != 3 {
		t.Errorf("%v after %d runs", err, len(earlier))
	}
	l.wantOnce("k")
}

func TestRowsThatFnKeptAreDead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	var rows pgx.Rows
	idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		var err error
		rows, err = tx.Query(ctx, "select * from generate_series(1, 1000000)")
		return ok, err
	})
	waitIdle(t, l.pool)
	for rows.Next() {
	}
	if rows.Err() == nil {
		t.Error("rows that were left open could be read to the end")
	}
	l.wantHealthy()
}

// Code that wraps any pgx.Tx, such as the helpers of pgx and sqlc, works with the tx of fn.
func TestTxOfFnWorksWithTheHelpersOfPgx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		rows, err := tx.Query(ctx, "insert into ledger (key) values ('a'), ('b') returning key")
		if err != nil {
			return ok, err
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if !slices.Equal(keys, []string{"a", "b"}) {
			t.Errorf("collected %q", keys)
		}
		var id int64
		if _, err := pgx.ForEachRow(must(tx.Query(ctx, "select id from ledger")), []any{&id}, func() error { return nil }); err != nil {
			t.Error(err)
		}
		if tx.Conn() == nil || tx.Conn().TypeMap() == nil {
			t.Error("no type map")
		}
		return ok, err
	})
	if err != nil {
		t.Error(err)
	}
}
