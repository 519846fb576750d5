package personality_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }
}

func codeOf(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

func TestARefusalIsTheErrorOfItsStatementAndAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			proxy := pgtest.Personality(t, personality.AuroraDSQL, pgtest.DSN(t), personality.Faults{})
			pool := pgtest.Open(t, proxy.DSN(), withMode(mode))
			for _, sql := range []string{"select pg_try_advisory_xact_lock(1)", "savepoint a", "truncate idem.records", "do $$ begin end $$"} {
				tx, err := pool.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(ctx, sql); codeOf(err) != "0A000" {
					t.Errorf("%s: %v", sql, err)
				}
				if _, err := tx.Exec(ctx, "select 1"); codeOf(err) != "25P02" {
					t.Errorf("after %s: %v", sql, err)
				}
				if err := tx.Rollback(ctx); err != nil {
					t.Error(err)
				}
			}
			if proxy.Refused() < 4 {
				t.Errorf("%d statements were refused", proxy.Refused())
			}
		})
	}
}
