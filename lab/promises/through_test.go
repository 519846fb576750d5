package promises_test

import (
	"context"
	"database/sql"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
)

// idemDo is idem.Do. If IDEM_TEST_THROUGH is set, idemDo is the Do of package idemsql, on a *sql.DB
// over the pool of the test. Package idemsql runs the tests of this package in that way:
// TestDo_KeepsThePromisesOfPackageIdem.
var idemDo = idem.Do

func init() {
	open := map[string]func(*pgxpool.Pool) *sql.DB{
		"OpenDB": idemsql.OpenDB,
		"stdlib": func(pool *pgxpool.Pool) *sql.DB { return stdlib.OpenDBFromPool(pool) },
	}[os.Getenv("IDEM_TEST_THROUGH")]
	if open != nil {
		idemDo = throughDatabaseSQL(open)
	}
}

func throughDatabaseSQL(open func(*pgxpool.Pool) *sql.DB) func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error) {
	var dbs sync.Map // by pool
	return func(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
		var db *sql.DB
		if pool != nil {
			known, ok := dbs.Load(pool)
			if !ok {
				known, _ = dbs.LoadOrStore(pool, open(pool))
			}
			db = known.(*sql.DB)
		}
		var inner func(*sql.Tx) (idem.Response, error)
		if fn != nil {
			inner = func(tx *sql.Tx) (idem.Response, error) {
				own, err := idemsql.Tx(context.Background(), tx)
				if err != nil {
					return idem.Response{}, err
				}
				return fn(own)
			}
		}
		return idemsql.Do(ctx, db, scope, key, hash, inner, opts...)
	}
}
