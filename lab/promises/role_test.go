package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// Row-level security usually depends on the role of the transaction. The role pg_monitor exists on
// every server and has no rights in the schema idem.
func TestFnThatChangesTheRoleIsToldToChangeItBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := l.pool.Exec(ctx, "grant insert, select on ledger to pg_monitor"); err != nil {
		t.Fatal(err)
	}
	asRole := func(key, afterwards string) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(ctx, "set local role pg_monitor"); err != nil {
				return idem.Response{}, err
			}
			resp, err := l.charge(key)(tx)
			if err == nil {
				_, err = tx.Exec(ctx, afterwards)
			}
			return resp, err
		}
	}
	for name, call := range map[string]func(key string, fn func(pgx.Tx) (idem.Response, error)) error{
		"Do": func(key string, fn func(pgx.Tx) (idem.Response, error)) error {
			_, err := idemDo(ctx, l.pool, scope, key, hashA, fn)
			return err
		},
		"DoTx": func(key string, fn func(pgx.Tx) (idem.Response, error)) error {
			return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				_, err := idem.DoTx(ctx, tx, scope, key, hashA, fn)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := "changed/" + name
			err := call(key, asRole(key, "select 1"))
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "42501" || !containsAll(err.Error(), "SET LOCAL ROLE", "RESET ROLE") {
				t.Errorf("err = %v", err)
			}
			l.wantNone(key)
			key = "changed back/" + name
			if err := call(key, asRole(key, "reset role")); err != nil {
				t.Error(err)
			}
			l.wantOnce(key)
		})
	}
}

// Row-level security refuses with the code of a missing privilege. Unlike a SET ROLE that outlives
// its transaction, that does not cost the connection.
func TestRole_DeniedStatementKeepsTheConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1))
	denied := func(role string) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(ctx, role); err != nil {
				return idem.Response{}, err
			}
			_, err := tx.Exec(ctx, "insert into ledger (key) values ('denied')")
			return idem.Response{}, err
		}
	}
	for _, test := range []struct {
		role  string
		dials int64
	}{{"set local role pg_monitor", 1}, {"set local role pg_monitor", 1}, {"set role pg_monitor; commit; begin", 1}} {
		_, err := idemDo(ctx, pool, scope, "denied", hashA, denied(test.role))
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Fatalf("%s: %v", test.role, err)
		}
		if n := pool.Stat().NewConnsCount(); n != test.dials {
			t.Errorf("%s: %d connections were made, want %d", test.role, n, test.dials)
		}
	}
	if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k")); err != nil {
		t.Errorf("behind a SET ROLE that was committed: %v", err)
	}
	if n := pool.Stat().NewConnsCount(); n != 2 {
		t.Errorf("behind a SET ROLE that was committed: %d connections were made, want 2", n)
	}
}
