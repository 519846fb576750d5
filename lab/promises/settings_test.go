package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// shadows are functions and operators that a search_path can put in front of the system's own. Each
// returns a wrong result.
const shadows = `
create schema app;
create function app.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
create function app.set_config(text, text, boolean) returns text language sql as $$ select null::text $$;
create function app.current_setting(text) returns text language sql as $$ select 'shadow'::text $$;
create function app.current_setting(text, boolean) returns text language sql as $$ select 'shadow'::text $$;
create function app.pg_try_advisory_xact_lock(bigint) returns boolean language sql as $$ select true $$;
create function app.pg_try_advisory_lock(bigint) returns boolean language sql as $$ select false $$;
create function app.pg_advisory_unlock(bigint) returns boolean language sql as $$ select false $$;
create function app.timestamptz_send(timestamptz) returns bytea language sql as $$ select '\x0000000000000000'::bytea $$;
create function app.convert_from(bytea, name) returns text language sql as $$ select '{"Shadow":["1"]}'::text $$;
create function app.convert_to(text, name) returns bytea language sql as $$ select '\x7b7d'::bytea $$;
create function app.decode(text, text) returns bytea language sql as $$ select '\x00'::bytea $$;
create function app.length(bytea) returns integer language sql as $$ select 0 $$;
create function app.length(text) returns integer language sql as $$ select 0 $$;
create function app."left"(text, integer) returns text language sql as $$ select 'shadow'::text $$;
create function app.current_database() returns name language sql as $$ select 'shadow'::name $$;
create function app.no(text, text) returns boolean language sql as $$ select false $$;
create function app.no(bytea, bytea) returns boolean language sql as $$ select false $$;
create function app.no(uuid, uuid) returns boolean language sql as $$ select false $$;
create function app.no(oid, oid) returns boolean language sql as $$ select false $$;
create function app.no(name, name) returns boolean language sql as $$ select false $$;
create function app.no(int4, int4) returns boolean language sql as $$ select false $$;
create function app.no(int8, int4) returns boolean language sql as $$ select false $$;
create function app.no(timestamptz, timestamptz) returns boolean language sql as $$ select false $$;
create function app.no(timestamptz, interval) returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
create function app.no_int(int4, int4) returns int4 language sql as $$ select 7 $$;
create type app.text as enum ('shadow');
create type app.bytea as enum ('shadow');
create type app.uuid as enum ('shadow');
create type app.int8 as enum ('shadow');
create type app.int4 as enum ('shadow');
create type app.jsonb as enum ('shadow');
create type app.bool as enum ('shadow');
create type app."interval" as enum ('shadow');
`

// shadowOperators returns wrong operators for every type that the statements compare.
func shadowOperators() (sql string) {
	for _, operand := range []string{"text", "bytea", "uuid", "oid", "name", "int4", "timestamptz"} {
		for _, name := range []string{"=", "<>", "<=", ">", ">=", "<"} {
			sql += fmt.Sprintf("create operator app.%s (leftarg = pg_catalog.%s, rightarg = pg_catalog.%[2]s, function = app.no);\n", name, operand)
		}
	}
	return sql + `create operator app.> (leftarg = pg_catalog.int8, rightarg = pg_catalog.int4, function = app.no);
		create operator app.+ (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.interval, function = app.no);
		create operator app./ (leftarg = pg_catalog.int4, rightarg = pg_catalog.int4, function = app.no_int);`
}

// sessions are settings that change how a session formats, parses or looks up values.
func sessions() map[string]string {
	settings := map[string]string{
		"none":                "",
		"bytea_output":        "set bytea_output = escape",
		"strings":             "set standard_conforming_strings = off",
		"LATIN1":              "set client_encoding = LATIN1",
		"SQL_ASCII":           "set client_encoding = SQL_ASCII",
		"search_path":         "set search_path = app, pg_catalog, public",
		"empty search_path":   "set search_path = app",
		"custom plans":        "set plan_cache_mode = force_custom_plan",
		"generic plans":       "set plan_cache_mode = force_generic_plan",
		"float digits":        "set extra_float_digits = -15",
		"lock_timeout":        "set lock_timeout = '9s'",
		"claim of a stranger": "select set_config('idem.claim', 'stranger', false)",
		"all together": `set bytea_output = escape; set standard_conforming_strings = off; set DateStyle = 'Postgres, DMY';
			set IntervalStyle = sql_standard; set TimeZone = 'Pacific/Chatham'; set client_encoding = LATIN1; set search_path = app, pg_catalog, public`,
	}
	for _, zone := range []string{"Pacific/Chatham", "America/St_Johns", "Europe/Lisbon"} {
		settings["TimeZone "+zone] = "set TimeZone = '" + zone + "'"
	}
	for _, style := range []string{"postgres", "postgres_verbose", "sql_standard", "iso_8601"} {
		settings["IntervalStyle "+style] = "set IntervalStyle = " + style
	}
	for _, style := range []string{"ISO", "SQL", "Postgres", "German"} {
		for _, order := range []string{"DMY", "MDY", "YMD"} {
			settings["DateStyle "+style+" "+order] = fmt.Sprintf("set DateStyle = '%s, %s'; set TimeZone = 'America/St_Johns'", style, order)
		}
	}
	return settings
}

// Settings of the session and the query mode do not change the outcome of a call, and there is one
// effect.
func TestSettingsOfTheSessionDoNotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			if _, err := l.pool.Exec(context.Background(), shadows+shadowOperators()); err != nil {
				t.Fatal(err)
			}
			for name, set := range sessions() {
				pool := pgtest.Open(t, l.pool.Config().ConnString(), withMode(mode), maxConns(2), func(config *pgxpool.Config) {
					config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
						return conn.PgConn().Exec(ctx, set).Close()
					}
				})
				wantSameOutcome(t, l, pool, name)
				pool.Close()
			}
		})
	}
}

// wantSameOutcome makes calls on a pool whose sessions have some settings, and compares the
// results.
func wantSameOutcome(t *testing.T, l *ledger, pool *pgxpool.Pool, name string) {
	t.Helper()
	ctx := context.Background()
	stored := idem.Response{Status: -7, Header: map[string][]string{"X": {hostile, "ß"}}, Body: []byte("\x00\\'\xffé" + hostile)}
	fn := func(key string) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) { // without parameters, which pgx refuses in some of these sessions
			executionID, _ := idem.ExecutionID(tx)
			return stored, tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(
				"insert into public.ledger (key, execution_id) values ('%s', pg_catalog.uuid '%s')", key, executionID)).Close()
		}
	}
	key, joined := name+"/é'\\$1", name+"/joined"
	entry := func(key string) string { return fmt.Sprintf("%x", key) }
	began := time.Now()
	first, err := idemDo(ctx, pool, scope, key, hashA, fn(entry(key)), idem.WithTTL(time.Hour))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if diff := cmp.Diff(stored, first.Response); diff != "" || first.Replayed {
		t.Errorf("%s: first: replayed %v\n%s", name, first.Replayed, diff)
	}
	first.Replayed = true
	for what, opts := range map[string][]idem.Option{"replay": nil, "replay at once": {idem.WithWait(0)}, "likely replay": {idem.WithReplayLikely()}} {
		again, err := idemDo(ctx, pool, scope, key, hashA, fn(entry(key)), opts...)
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Errorf("%s: %s: %v\n%s", name, what, err, diff)
		}
	}
	if took := first.CreatedAt.Sub(began); took < -time.Hour/2 || took > time.Hour/2 || first.CompletedAt.Before(first.CreatedAt) {
		t.Errorf("%s: created %v after the beginning", name, took)
	}
	if _, err := idemDo(ctx, pool, scope, key, hashB, fn(entry(key))); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("%s: mismatch: %v", name, err)
	}
	found, err := idem.Lookup(ctx, pool, scope, key)
	want := idem.Entry{State: idem.StateCompleted, ExecutionID: first.ExecutionID, Since: first.CreatedAt, CompletedAt: first.CompletedAt, ExpiresAt: first.CompletedAt.Add(time.Hour)}
	if diff := cmp.Diff(want, found, cmpWithin(time.Minute)); err != nil || diff != "" {
		t.Errorf("%s: Lookup: %v\n%s", name, err, diff)
	}
	for range 2 {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			res, err := idem.DoTx(ctx, tx, scope, joined, hashA, fn(entry(joined)))
			if diff := cmp.Diff(stored, res.Response); err == nil && diff != "" {
				t.Errorf("%s: joined\n%s", name, diff)
			}
			held, lookupErr := idem.Lookup(ctx, pool, scope, joined)
			if lookupErr != nil || !res.Replayed && held.State != idem.StateProcessing {
				t.Errorf("%s: Lookup of a key in flight: %+v, %v", name, held, lookupErr)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: joined: %v", name, err)
		}
	}
	// A key in progress is in progress for a session with these settings too.
	holder := l.begin(ctx)
	if _, err := idem.DoTx(ctx, holder, scope, name+"/held", hashA, answer(ok)); err != nil {
		t.Errorf("%s: held: %v", name, err)
	}
	if _, err := idemDo(ctx, pool, scope, name+"/held", hashA, answer(ok), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("%s: held: %v", name, err)
	}
	holder.Rollback(ctx)
	// An expired record is taken over exactly once.
	if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = clock_timestamp() where key = $1", key); err != nil {
		t.Fatal(err)
	}
	for _, replayed := range []bool{false, true} {
		if res, err := idemDo(ctx, pool, scope, key, hashB, fn(entry(key+"/2"))); err != nil || res.Replayed != replayed {
			t.Errorf("%s: taken over: replayed %v, %v", name, res.Replayed, err)
		}
	}
	for _, key := range []string{key, key + "/2", joined} {
		if n := l.entries(entry(key)); n != 1 {
			t.Errorf("%s: %d effects of %s", name, n, key)
		}
	}
}

// cmpWithin makes cmp treat times within margin as equal.
func cmpWithin(margin time.Duration) cmp.Option {
	return cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() <= margin })
}
