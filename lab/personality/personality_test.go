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

func TestALockThatIsAlwaysGrantedHoldsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	direct := pgtest.Open(t, dsn)
	pool := pgtest.Open(t, pgtest.Personality(t, personality.OldCockroachDB, dsn, personality.Faults{}).DSN())
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	var granted, free bool
	if err := tx.QueryRow(ctx, "select pg_catalog.pg_try_advisory_xact_lock($1::int8)", 7).Scan(&granted); err != nil || !granted {
		t.Errorf("%t, %v", granted, err)
	}
	if err := direct.QueryRow(ctx, "select pg_try_advisory_xact_lock(7)").Scan(&free); err != nil || !free {
		t.Errorf("it is held: %v", err)
	}
}

func TestACommitHasTheFateThatIsSetForIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		faults personality.Faults
		code   string
		want   int
	}{
		"conflict":  {personality.Faults{Conflict: 1}, "40001", 0},
		"uncertain": {personality.Faults{Uncertain: 1, Code: "XX000"}, "XX000", 1},
		"lost":      {personality.Faults{Lost: 1}, "", 1},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				dsn := pgtest.DSN(t)
				direct := pgtest.Open(t, dsn)
				if _, err := direct.Exec(ctx, "create table made (n int)"); err != nil {
					t.Fatal(err)
				}
				pool := pgtest.Open(t, pgtest.Personality(t, personality.PgDog, dsn, test.faults).DSN(), withMode(mode))
				err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
					batch := &pgx.Batch{}
					batch.Queue("begin")
					batch.Queue("insert into made values (1)")
					batch.Queue("commit")
					return conn.SendBatch(ctx, batch).Close()
				})
				if err == nil || codeOf(err) != test.code {
					t.Errorf("the answer is %v", err)
				}
				var n int
				if err := direct.QueryRow(ctx, "select count(*) from made").Scan(&n); err != nil || n != test.want {
					t.Errorf("%d are made, %v", n, err)
				}
				if err := pool.QueryRow(ctx, "select count(*) from made").Scan(&n); err != nil {
					t.Errorf("the next statement: %v", err)
				}
			})
		}
	}
}

func TestSettingsThatAreManagedAreRefusedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Open(t, pgtest.Personality(t, personality.Multigres, pgtest.DSN(t), personality.Faults{}).DSN())
	for sql, want := range map[string]string{
		"select set_config('synchronous_commit', 'off', true)": "0A000", "set synchronous_commit = off": "0A000",
		"select set_config('lock_timeout', '1s', true)": "",
	} {
		if _, err := pool.Exec(ctx, sql); codeOf(err) != want || want == "" && err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
