package promises_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/purge"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// fewModes are the modes that differ most: with prepared statements, and with values in the text of
// the statement.
var fewModes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol}

// inFewModes runs a parallel subtest in each of fewModes, on a database of its own.
func inFewModes(t *testing.T, test func(*testing.T, *ledger, pgx.QueryExecMode), configure ...func(*pgxpool.Config)) {
	for _, mode := range fewModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newLedger(t, append(configure, withMode(mode))...), mode)
		})
	}
}

func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }
}

// hostile is text that breaks out of incomplete quoting.
const hostile = `'; drop table idem.records; -- $1 $2 \' "\x00" ` + "`$$" + ` %s é😀`

func TestDo_WorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			wantSameOutcome(t, l, l.process(withMode(mode)), "no settings")
		})
	}
}

// A prepared statement that was discarded, or that no longer fits the table, costs a new connection
// and no error. The caller of DoTx runs its transaction again after an error.
func TestDo_ReplacesStaleStatements(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for i, spoil := range []string{
		"deallocate all",
		"discard all",
		"alter table idem.records alter column status type bigint",
	} {
		warm, next, joined := fmt.Sprint("warm", i), fmt.Sprint("next", i), fmt.Sprint("joined", i)
		l.charged(ctx, warm)
		execute(t, l.pool, spoil)
		l.charged(ctx, next)
		l.wantOnce(warm)
		l.wantOnce(next)
		waitIdle(t, l.pool)
		execute(t, l.pool, spoil)
		var err error
		for range 2 {
			_, err = outers["DoTx"](ctx, l, joined, answer(ok))
		}
		wantIs(t, err, nil, "after ", spoil)
		l.pool.Reset() // the statements of charge are discarded, too
	}
}

func TestDo_WorksBehindPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, bouncer := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.PgBouncer(t, dsn)
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		pool := pgtest.Open(t, bouncer, withMode(mode))
		wantSameOutcome(t, l, pool, mode.String())
		records := l.count("with expired as (update idem.records set expires_at = now() - interval '2 hours' returning 1) select count(*) from expired")
		if rep, err := purge.Once(t.Context(), pool, purge.Options{MaxLag: -1, MaxDead: -1}); err != nil || rep.Deleted != int64(records) {
			t.Errorf("%v: the purge: %+v, %v, want %d deleted", mode, rep, err, records)
		}
		var lock string
		if err := pool.QueryRow(t.Context(), "show lock_timeout").Scan(&lock); err != nil || lock != "0" {
			t.Errorf("%v: a connection of the pooler is left with lock_timeout %s, %v", mode, lock, err)
		}
	}
}

// shadows are functions and operators that a search_path can put in front of the system's own. Each
// returns a wrong result. Package db tests every operator and type.
const shadows = `
create schema app;
create function app.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
create function app.set_config(text, text, boolean) returns text language sql as $$ select null::text $$;
create function app.current_setting(text) returns text language sql as $$ select 'shadow'::text $$;
create function app.pg_try_advisory_xact_lock(bigint) returns boolean language sql as $$ select true $$;
create function app.convert_from(bytea, name) returns text language sql as $$ select '{"Shadow":["1"]}'::text $$;
create function app.no(text, text) returns boolean language sql as $$ select false $$;
create function app.no(timestamptz, interval) returns timestamptz language sql as $$ select timestamptz '2001-01-01 00:00:00Z' $$;
create operator app.= (leftarg = pg_catalog.text, rightarg = pg_catalog.text, function = app.no);
create operator app.+ (leftarg = pg_catalog.timestamptz, rightarg = pg_catalog.interval, function = app.no);
create type app.text as enum ('shadow');
create type app.bytea as enum ('shadow');
create type app.uuid as enum ('shadow');
`

// sessions are settings that change how a session formats, parses or looks up values.
var sessions = map[string]string{
	"bytea_output":        "set bytea_output = escape",
	"strings":             "set standard_conforming_strings = off",
	"LATIN1":              "set client_encoding = LATIN1",
	"search_path":         "set search_path = app, pg_catalog, public",
	"generic plans":       "set plan_cache_mode = force_generic_plan",
	"float digits":        "set extra_float_digits = -15",
	"lock_timeout":        "set lock_timeout = '9s'",
	"claim of a stranger": "select set_config('idem.claim', 'stranger', false)",
	"IntervalStyle":       "set IntervalStyle = postgres_verbose",
	"DateStyle SQL":       "set DateStyle = 'SQL, DMY'; set TimeZone = 'America/St_Johns'",
	"DateStyle German":    "set DateStyle = 'German, YMD'; set TimeZone = 'Europe/Lisbon'",
	"all together": `set bytea_output = escape; set standard_conforming_strings = off; set DateStyle = 'Postgres, DMY';
		set IntervalStyle = sql_standard; set TimeZone = 'Pacific/Chatham'; set client_encoding = LATIN1; set search_path = app, pg_catalog, public`,
}

// Settings of the session and the query mode do not change the outcome of a call, and there is one
// effect.
func TestDo_SettingsOfTheSessionChangeNoOutcome(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, mode pgx.QueryExecMode) {
		execute(t, l.pool, shadows)
		for name, set := range sessions {
			pool := l.process(withMode(mode), maxConns(2), func(config *pgxpool.Config) {
				config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					return conn.PgConn().Exec(ctx, set).Close()
				}
			})
			wantSameOutcome(t, l, pool, name)
			pool.Close()
		}
	})
}

// wantSameOutcome makes calls of all kinds on a pool whose sessions have some settings, and
// compares the results.
func wantSameOutcome(t *testing.T, l *ledger, pool *pgxpool.Pool, name string) {
	t.Helper()
	stored := idem.Response{Status: -7, Header: header{"X": {hostileHeader, "ß"}}, Body: []byte("\x00\\'\xffé" + hostile)}
	entry := func(key string) string { return fmt.Sprintf("%x", key) }
	fn := func(key string, end error) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) { // without parameters, which pgx refuses in some of these sessions
			executionID, _ := idem.ExecutionID(tx)
			err := tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(
				"insert into public.ledger (key, execution_id) values ('%s', pg_catalog.uuid '%s')", entry(key), executionID)).Close()
			return stored, errors.Join(err, end)
		}
	}
	key, joined, rejected := name+"/é'\\$1", name+"/joined", name+"/rejected"
	began := time.Now()
	first, err := idemDo(ctx, pool, scope, key, hashA, fn(key, nil), idem.WithTTL(time.Hour))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if diff := cmp.Diff(stored, first.Response); diff != "" || first.Replayed {
		t.Errorf("%s: first: replayed %v\n%s", name, first.Replayed, diff)
	}
	for what, opts := range map[string][]idem.Option{"replay": nil, "replay at once": {idem.WithWait(0)}, "likely replay": {idem.WithReplayLikely()}} {
		wantReplay(t, name+": "+what, first)(idemDo(ctx, pool, scope, key, hashA, neverCalled(t), opts...))
	}
	if took := first.CreatedAt.Sub(began); took < -time.Hour/2 || took > time.Hour/2 || first.CompletedAt.Before(first.CreatedAt) {
		t.Errorf("%s: created %v after the beginning", name, took)
	}
	wantIs(t, errOf(idemDo(ctx, pool, scope, key, hashB, neverCalled(t))), idem.ErrMismatch, name)
	if res, err := idemDo(ctx, pool, scope, rejected, hashA, fn(rejected, idem.Reject(ok))); err != nil || !res.Rejected {
		t.Errorf("%s: rejected: %+v, %v", name, res, err)
	}
	wantIs(t, errOf(idemDo(ctx, pool, scope, name+"/failed", hashA, fn(name+"/failed", errBusiness))), errBusiness, name)
	found, err := idem.Lookup(ctx, pool, scope, key)
	want := idem.Entry{State: idem.StateCompleted, ExecutionID: first.ExecutionID, Since: first.CreatedAt, CompletedAt: first.CompletedAt, ExpiresAt: first.ExpiresAt}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("%s: Lookup: %v\n%s", name, err, diff)
	}
	for range 2 {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			wantIs(t, errOf(idem.DoTx(ctx, tx, scope, name+"/failed", hashA, fn(name+"/failed", errBusiness))), errBusiness, name)
			res, err := idem.DoTx(ctx, tx, scope, joined, hashA, fn(joined, nil))
			if diff := cmp.Diff(stored, res.Response); err == nil && diff != "" {
				t.Errorf("%s: joined\n%s", name, diff)
			}
			return err
		})
		wantIs(t, err, nil, name, " joined")
	}
	// Sessions with these settings must see a key in progress too.
	holder := l.begin(ctx)
	wantIs(t, errOf(idem.DoTx(ctx, holder, scope, name+"/held", hashA, answer(ok))), nil, name, " held")
	wantIs(t, errOf(idemDo(ctx, pool, scope, name+"/held", hashA, neverCalled(t), idem.WithWait(0))), idem.ErrInProgress, name)
	if entry, err := idem.Lookup(ctx, pool, scope, name+"/held"); err != nil || entry.State != idem.StateProcessing {
		t.Errorf("%s: Lookup of a key in flight: %+v, %v", name, entry, err)
	}
	holder.Rollback(ctx)
	l.expire(key) // an expired record is taken over exactly once
	for _, replayed := range []bool{false, true} {
		wantDone(t, replayed, name, " taken over")(idemDo(ctx, pool, scope, key, hashB, fn(key+"/2", nil)))
	}
	for key, want := range map[string]int{key: 1, key + "/2": 1, joined: 1, rejected: 0, name + "/failed": 0} {
		l.wantCount(name+": effects of "+key, want, "select count(*) from ledger where key = $1", entry(key))
	}
}

// discards makes a pool discard all prepared statements when a connection is released.
func discards(config *pgxpool.Config) {
	config.AfterRelease = func(conn *pgx.Conn) bool {
		err := conn.DeallocateAll(context.Background())
		if err == nil {
			_, err = conn.Exec(context.Background(), "discard all", pgx.QueryExecModeSimpleProtocol)
		}
		return err == nil
	}
}

func TestDo_ServesAPoolThatDiscardsStatementsOnRelease(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(2), discards)
	var calls sync.WaitGroup
	for i := range 4 {
		calls.Go(func() {
			for j := range 3 {
				key := fmt.Sprint("k", i, "/", j)
				for _, opts := range [][]idem.Option{nil, {idem.WithReplayLikely()}, {idem.WithWait(0)}} {
					if err := errOf(idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), opts...)); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
				lookup := errOf(idem.Lookup(ctx, l.pool, scope, key))
				joined := errOf(outers["DoTx"](ctx, l, "joined "+key, l.charge("joined "+key)))
				if err := errors.Join(lookup, joined); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	calls.Wait()
	for i := range 4 {
		for j := range 3 {
			l.wantOnce(fmt.Sprint("k", i, "/", j))
			l.wantOnce(fmt.Sprint("joined k", i, "/", j))
		}
	}
	waitIdle(t, l.pool)
	l.wantSameConnections(2)
}

// The statements sent together with COMMIT turn out to be missing when fn has already run. That
// must not happen again on the same connection.
func TestDo_LostStatementOfTheCompletionCostsOneRun(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	l.charged(ctx, "warm")
	execute(t, l.pool, "deallocate idem_complete")
	for i, want := range []int64{2, 1} {
		key := fmt.Sprint("k", i)
		before := l.runs.Load()
		l.charged(ctx, key)
		if runs := l.runs.Load() - before; runs != want {
			t.Errorf("%s: %d runs, want %d", key, runs, want)
		}
		l.wantOnce(key)
	}
}

// explain returns the plan of a statement that idem has prepared on the only connection of the
// pool.
func explain(t *testing.T, pool *pgxpool.Pool, statement string) string {
	t.Helper()
	rows, _ := pool.Query(context.Background(), "explain (costs off) execute "+statement, pgx.QueryExecModeSimpleProtocol)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(lines, "\n")
}

// stalePlans makes the server keep the first generic plan, which was made for a small table. No
// analyze replaces it.
func stalePlans(config *pgxpool.Config) {
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
}

const explainLoad = `idem_load('\x01', '00000000-0000-0000-0000-000000000000', 'scope', 'key')`

// A plan from when the table was small scans the whole table. Only an analyze would replace such a
// plan.
func TestPlan_IsMadeAgainWhenTheTableHasGrown(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	execute(t, l.pool, "alter table idem.records set (autovacuum_enabled = false)")
	l.seed(10, "small")
	execute(t, l.pool, "analyze idem.records")
	pool := l.process(maxConns(1), stalePlans)
	call := func() {
		t.Helper()
		noError(t, errOf(idemDo(ctx, pool, scope, "k", hashA, l.charge("k"))))
		waitIdle(t, pool)
	}
	call()
	call()
	preparedAt := func() (at time.Time) {
		t.Helper()
		noError(t, pool.QueryRow(ctx, "select prepare_time from pg_prepared_statements where name = 'idem_load'").Scan(&at))
		return at
	}
	before := preparedAt()
	if plan := explain(t, pool, explainLoad); !strings.Contains(plan, "Seq Scan") {
		t.Fatalf("this test has no trap: %s", plan)
	}
	l.seed(50_000, "large")
	waiting.Until(t, "the plan to be made again", func() bool { call(); return !preparedAt().Equal(before) })
	if plan := explain(t, pool, explainLoad); !strings.Contains(plan, "Index Scan using records_pkey") {
		t.Errorf("load: %s", plan)
	}
	l.wantOnce("k")
}

// awaitDue waits until the only connection of the pool has a plan that is due to be made again.
func awaitDue(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	awaitTrue(t, pool, `select exists (select from pg_prepared_statements
		where name = 'idem_load' and prepare_time < clock_timestamp() - interval '2.5 s') from pg_sleep(0.05)`)
}

// behindPgBouncer runs check in each mode that works behind the installed PgBouncer, with one
// connection to it.
func behindPgBouncer(t *testing.T, check func(t *testing.T, l *ledger, mode pgx.QueryExecMode)) {
	t.Helper()
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			check(t, ledgerOn(t, pgtest.Open(t, pgtest.PgBouncer(t, pgtest.DSN(t)), maxConns(1), withMode(mode))), mode)
		})
	}
}

// PgBouncer prepares equal SQL once for all clients, and so shares its plan among them.
func TestPlan_IsNotKeptByPgBouncer(t *testing.T) {
	t.Parallel()
	behindPgBouncer(t, func(t *testing.T, l *ledger, mode pgx.QueryExecMode) {
		call := func() {
			t.Helper()
			noError(t, errOf(idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))))
			waitIdle(t, l.pool)
		}
		prepared := func() int {
			return l.count("select count(*) from pg_prepared_statements where statement like '-- name: Load :one%'")
		}
		call()
		if (prepared() > 0) != (mode == pgx.QueryExecModeCacheStatement) {
			t.Fatalf("%d statements are prepared", prepared())
		}
		if prepared() > 0 {
			waiting.Until(t, "a plan to be made anew", func() bool { call(); return prepared() > 1 })
		}
		l.wantOnce("k")
	})
}

// warmed returns a pool of one connection through the proxy. The connection has prepared every
// statement.
func (p *proxied) warmed(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, p.proxy.DSN(), append(configure, maxConns(1))...)
	for _, key := range []string{"warm", "warm"} {
		noError(t, errOf(idemDo(t.Context(), pool, scope, key, hashA, p.charge(key))))
	}
	waitIdle(t, pool)
	p.proxy.ResetTally()
	return pool
}

// unlessPlansAreDue repeats a count. A connection whose plans are two seconds old makes them again
// in a round trip for which no caller waits. On a busy machine that round trip can fall into a
// count.
func unlessPlansAreDue(count func(try int) bool) bool {
	for try := range 5 {
		if count(try) {
			return true
		}
	}
	return false
}

// The caller of a replay has its answer after one round trip. In this test the proxy blocks the
// second one, which is the rollback.
func TestRoundTrips_ReplayCostsOne(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("rollback")), pgproxy.Freeze)
	replayed(t)(idemDo(t.Context(), pool, scope, "warm", hashA, p.charge("warm")))
	event := await(t, "the rollback", trap.Fired())
	if n := p.proxy.Tally().Turns; n != 1+1 { // the replay, and the rollback that is blocked
		t.Errorf("a replay takes %d round trips, the rollback included", n)
	}
	event.Conn.Resume()
	waitIdle(t, pool)
	// A likely replay is one statement. It begins no transaction, so nothing has to be rolled back.
	var n int
	likely := unlessPlansAreDue(func(int) bool {
		p.proxy.ResetTally()
		replayed(t)(idemDo(t.Context(), pool, scope, "warm", hashA, p.charge("warm"), idem.WithReplayLikely()))
		waitIdle(t, pool)
		n = p.proxy.Tally().Turns
		return n == 1
	})
	if !likely {
		t.Errorf("a likely replay takes %d round trips", n)
	}
	executed(t, "a key that is new after all")(idemDo(t.Context(), pool, scope, "new", hashA, p.charge("new"), idem.WithReplayLikely()))
	wantIs(t, errOf(idemDo(t.Context(), pool, scope, "new", hashB, p.charge("new"), idem.WithReplayLikely())), idem.ErrMismatch, "another request")
	p.wantOnce("new")
}

func TestRoundTrips_DoTxCostsTwo(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	tx, err := pool.Begin(t.Context())
	noError(t, err)
	defer tx.Rollback(t.Context())
	noError(t, errOf(idem.DoTx(t.Context(), tx, scope, "first", hashA, p.charge("first")))) // makes the connection prepare the statements
	var n int
	ok := unlessPlansAreDue(func(try int) bool {
		p.proxy.ResetTally()
		key := fmt.Sprint("k", try)
		noError(t, errOf(idem.DoTx(t.Context(), tx, scope, key, hashA, p.charge(key))))
		n = p.proxy.ResetTally().Turns
		return n == 3
	})
	if !ok {
		t.Errorf("DoTx with one statement takes %d round trips, want 3", n)
	}
}
