package promises_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestSavepointsWorkInsideFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	insert := func(tx pgx.Tx, what string) error {
		_, err := tx.Exec(ctx, "insert into ledger (key) values ($1)", what)
		return err
	}
	begin := func(tx pgx.Tx) pgx.Tx {
		nested, err := tx.Begin(ctx)
		if err != nil {
			t.Error(err)
		}
		return nested
	}
	for name, test := range map[string]struct {
		fn   func(pgx.Tx) error
		want []string
	}{
		"committed":   {func(tx pgx.Tx) error { sp := begin(tx); return errors.Join(insert(sp, "a"), sp.Commit(ctx)) }, []string{"a"}},
		"rolled back": {func(tx pgx.Tx) error { sp := begin(tx); return errors.Join(insert(sp, "a"), sp.Rollback(ctx)) }, nil},
		"inner rolled back, outer committed": {func(tx pgx.Tx) error {
			outer := begin(tx)
			err := insert(outer, "outer")
			inner := begin(outer)
			return errors.Join(err, insert(inner, "inner"), inner.Rollback(ctx), insert(outer, "after"), outer.Commit(ctx))
		}, []string{"outer", "after"}},
		"inner committed, outer rolled back": {func(tx pgx.Tx) error {
			outer := begin(tx)
			inner := begin(outer)
			return errors.Join(insert(inner, "inner"), inner.Commit(ctx), outer.Rollback(ctx), insert(tx, "after"))
		}, []string{"after"}},
		"BeginFunc": {func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				return pgx.BeginFunc(ctx, sp, func(sp pgx.Tx) error { return insert(sp, "a") })
			})
		}, []string{"a"}},
		"BeginFunc that fails": {func(tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return errors.Join(insert(sp, "a"), errBusiness) })
			if !errors.Is(err, errBusiness) {
				t.Error(err)
			}
			return insert(tx, "b")
		}, []string{"b"}},
		"a SQL error is survived": {func(tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				_, err := sp.Exec(ctx, "select 1/0")
				return err
			})
			if err == nil {
				t.Error("no error")
			}
			return insert(tx, "b")
		}, []string{"b"}},
		"left open": {func(tx pgx.Tx) error { return insert(begin(tx), "a") }, []string{"a"}},
		"raw": {func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "savepoint s; insert into ledger (key) values ('a'); release s")
			return err
		}, []string{"a"}},
		"closed twice": {func(tx pgx.Tx) error {
			sp := begin(tx)
			defer sp.Rollback(ctx)
			return errors.Join(insert(sp, "a"), sp.Commit(ctx))
		}, []string{"a"}},
		"used after it was closed": {func(tx pgx.Tx) error {
			sp := begin(tx)
			if err := sp.Commit(ctx); err != nil {
				t.Error(err)
			}
			if err := insert(sp, "no"); !errors.Is(err, pgx.ErrTxClosed) {
				t.Error(err)
			}
			return nil
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := l.pool.Exec(ctx, "truncate ledger"); err != nil {
				t.Fatal(err)
			}
			res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) { return ok, test.fn(tx) })
			if err != nil || res.Replayed {
				t.Fatalf("%+v, %v", res, err)
			}
			rows, _ := l.pool.Query(ctx, "select key from ledger order by id")
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("committed %q, want %q (%v)", got, test.want, err)
			}
			if again, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name)); err != nil || !again.Replayed {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
}

func TestSavepointInAnIgnoredErrorCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge("k")(tx)
		if err != nil {
			return resp, err
		}
		sp, err := tx.Begin(ctx)
		if err != nil {
			return resp, err
		}
		sp.Exec(ctx, "select 1/0")
		return resp, nil
	})
	if !errors.Is(err, idem.ErrTxAborted) {
		t.Errorf("err = %v", err)
	}
	l.wantNone("k")
	l.wantFree("k")
}

func TestCopyAndBatchInsideFnArePartOfTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for _, end := range []error{errBusiness, nil} {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			n, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"key"}, pgx.CopyFromRows([][]any{{"copy"}, {"copy"}}))
			if err != nil || n != 2 {
				t.Errorf("copied %d, %v", n, err)
			}
			batch := &pgx.Batch{}
			batch.Queue("insert into ledger (key) values ($1)", "batch")
			batch.Queue("select count(*) from ledger").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			if err := tx.SendBatch(ctx, batch).Close(); err != nil || n != 3 {
				t.Errorf("sees %d, %v", n, err)
			}
			objects := tx.LargeObjects()
			if _, err := objects.Create(ctx, 4711); err != nil {
				t.Error(err)
			}
			statement, err := tx.Prepare(ctx, "", "insert into ledger (key) values ($1)")
			if err != nil || len(statement.ParamOIDs) != 1 {
				t.Errorf("prepared %+v, %v", statement, err)
			}
			return ok, end
		})
		if err != end {
			t.Errorf("err = %v, want %v", err, end)
		}
		want := map[bool]int{true: 1}[end == nil]
		if c, b, o := l.entries("copy"), l.entries("batch"), l.count("select count(*) from pg_largeobject_metadata"); c != 2*want || b != want || o != want {
			t.Errorf("after %v: %d copied, %d from the batch, %d large objects", end, c, b, o)
		}
	}
	l.wantHealthy()
}
