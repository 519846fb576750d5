package operation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// hostile is a schema whose functions, operators and types lie, and which a search_path puts in front of the system's.
func hostile() string {
	sql := `
		create schema app;
		create function app.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
		create function app.set_config(text, text, boolean) returns text language sql as $$ select null::text $$;
		create function app.current_setting(text, boolean) returns text language sql as $$ select 'shadow'::text $$;
		create function app.timestamptz_send(timestamptz) returns bytea language sql as $$ select '\x0000000000000000'::bytea $$;
		create function app.length(bytea) returns integer language sql as $$ select 0 $$;
		create function app.current_database() returns name language sql as $$ select 'shadow'::name $$;
		create function app.nextval(regclass) returns bigint language sql as $$ select 1::bigint $$;
		create function app.pg_backend_pid() returns integer language sql as $$ select 1 $$;
		create function app.pg_try_advisory_lock(integer, integer) returns boolean language sql as $$ select false $$;
		create function app.no(timestamptz, interval) returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
		create function app.no(int4, int4) returns boolean language sql as $$ select false $$;
		create function app.no_int(int4, int4) returns int4 language sql as $$ select 7 $$;
		create operator app.+ (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.interval, function = app.no);
		create operator app.- (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.interval, function = app.no);
		create operator app.+ (leftarg = pg_catalog.int4, rightarg = pg_catalog.int4, function = app.no_int);
		create operator app./ (leftarg = pg_catalog.int4, rightarg = pg_catalog.int4, function = app.no_int);`
	for _, operand := range []string{"text", "bytea", "uuid", "oid", "name", "int2", "int4", "int8", "timestamptz"} {
		if operand != "int4" {
			sql += fmt.Sprintf("create function app.no(%[1]s, %[1]s) returns boolean language sql as $$ select false $$;\n", "pg_catalog."+operand)
		}
		for _, name := range []string{"=", "<>", "<=", ">", ">=", "<"} {
			sql += fmt.Sprintf("create operator app.%s (leftarg = pg_catalog.%s, rightarg = pg_catalog.%[2]s, function = app.no);\n", name, operand)
		}
	}
	for _, name := range []string{"text", "bytea", "uuid", "int8", "int4", "bool", "oid", "regclass", `"interval"`, "timestamptz"} {
		sql += fmt.Sprintf("create type app.%s as enum ('shadow');\n", name)
	}
	return sql
}

// Nothing that an operation sends depends on what a session is set to: neither what names mean, nor how values are written.
func TestSession_SettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			if _, err := s.pool.Exec(t.Context(), hostile()); err != nil {
				t.Fatal(err)
			}
			pool := pgtest.Open(t, s.dsn, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.RuntimeParams = map[string]string{"search_path": "app, pg_catalog, public", "bytea_output": "escape",
					"datestyle": "Postgres, DMY", "intervalstyle": "sql_standard", "timezone": "Pacific/Chatham"}
			})
			behind := &shop{t: t, pool: pool}
			d := operation.Define("travel", func(op *operation.Op, _ string) (idem.Response, error) {
				if _, err := operation.Tx(op, "first", write("first"), undoBy[string]("undo first")); err != nil {
					return idem.Response{}, err
				}
				if _, err := operation.Await[string](op, "go on", time.Hour); err != nil {
					return idem.Response{}, err
				}
				if err := longSleep(op, ""); err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, idem.Reject(declined)
			})
			var id string
			err := pgx.BeginFunc(t.Context(), behind.pool, func(tx pgx.Tx) (err error) {
				id, err = d.Start(t.Context(), tx, scope, "k", hashA, "")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			behind.work(t, d)
			eventually(t, "the wait for a signal", func() bool { return s.isFree("go on") })
			if err := operation.Signal(context.Background(), behind.pool, id, "go on", "now"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the sleep", func() bool { return s.isFree("pause") })
			s.elapse()
			res, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, "", idem.WithWait(limit))
			if err != nil || !res.Rejected {
				t.Fatal(res, err)
			}
			if did := fmt.Sprint(s.did()); did != "[first undo first]" {
				t.Errorf("%s is committed", did)
			}
		})
	}
}
