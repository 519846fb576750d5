package stats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/stats"
)

// fill inserts n records. The given share expired over the last ten hours, evenly; the others
// expire over the next ten.
func fill(t *testing.T, on querier, n int, expired float64) {
	t.Helper()
	exec(t, on, `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		select 's', 'k' || i, '\x00', gen_random_uuid(), now() - interval '20 hours',
		       now() + case when i <= $1::float8 * $2::float8 then interval '10 hours' * (i / ($1 * $2) - 1)
		                    else interval '10 hours' * i / $1 + interval '1 minute' end, 'completed'
		from generate_series(1, $1::float8::int) i`, float64(n), expired)
}

// fillAnalyzed calls fill, executes the edits and then analyzes the table.
func fillAnalyzed(t *testing.T, pool *pgxpool.Pool, n int, expired float64, edits ...string) {
	t.Helper()
	counted(t, pool, n, func(on querier) {
		fill(t, on, n, expired)
		for _, sql := range edits {
			exec(t, on, sql)
		}
	})
	exec(t, pool, "analyze idem.records")
}

// counted calls add and waits until the statistics count the n records that it adds. A session
// reports its changes with a delay. If ANALYZE ran before the report, the records would be counted
// twice.
func counted(t *testing.T, pool *pgxpool.Pool, n int, add func(querier)) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	add(conn)
	if _, err := conn.Exec(t.Context(), "select pg_stat_force_next_flush()"); err != nil {
		t.Logf("PostgreSQL 14 has no forced flush: %v", err)
	}
	for live := 0; live < n; time.Sleep(time.Millisecond) { // each command may send the report
		err := conn.QueryRow(t.Context(), "select sum(n_live_tup) from pg_stat_user_tables where schemaname = 'idem' and relname like 'records%'").Scan(&live)
		if err != nil {
			t.Fatal(err)
		}
	}
}

type querier interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}

func exec(t *testing.T, on querier, sql string, args ...any) {
	t.Helper()
	rows, err := on.Query(context.Background(), sql, args...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

func read(t *testing.T, on stats.DB) stats.Stats {
	t.Helper()
	v, err := stats.Read(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func near(got, want, by float64) bool { return got >= want-by && got <= want+by }

func TestRead_EstimatesRecordsOfAnAnalyzedTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	fillAnalyzed(t, pool, 4000, 0.25)
	v := read(t, pool)
	if v.Records.Count.Quality != stats.Estimate || !near(float64(v.Records.Count.Value), 4000, 40) {
		t.Errorf("records: %+v, want about 4000", v.Records.Count)
	}
	if v.Records.Expired.Quality != stats.Estimate || !near(float64(v.Records.Expired.Value), 1000, 50) {
		t.Errorf("expired: %+v, want about 1000", v.Records.Expired)
	}
	if v.Records.OldestExpired.Quality != stats.Estimate || !near(v.Records.OldestExpired.Value.Hours(), 10, 0.3) {
		t.Errorf("oldest expired: %+v, want about 10 hours", v.Records.OldestExpired)
	}
	if v.Records.HeapBytes < 4000*50 || v.Records.IndexBytes < 4000*8 || v.Records.OtherBytes < 0 || v.ReadAt.IsZero() || v.Records.AnalyzedAt.IsZero() {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(v.Records.Expired.Note, "analyze") {
		t.Errorf("the note does not say what the estimate rests on: %q", v.Records.Expired.Note)
	}
}

func TestRead_ExpiredIsUnknownBeforeTheFirstAnalyze(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, "alter table idem.records set (autovacuum_enabled = off)")
	fill(t, pool, 1000, 0.5)
	v := read(t, pool)
	if v.Records.Expired.Known() || v.Records.OldestExpired.Known() || v.Purge.Lag.Known() || !strings.Contains(v.Records.Expired.Note, "never analyzed") {
		t.Errorf("%+v %+v %+v", v.Records.Expired, v.Records.OldestExpired, v.Purge.Lag)
	}
	if !v.Records.AnalyzedAt.IsZero() {
		t.Errorf("analyzed at %v", v.Records.AnalyzedAt)
	}
}

// Every server has the role pg_signal_backend, which has no privilege in the schema idem. That Read
// works for it also shows that Read reads no record.
func TestRead_WorksWithoutAnyPrivilege(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t)
	fillAnalyzed(t, pool, 1000, 0.5)
	holding(t, pool, func() {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		exec(t, conn, "set role pg_signal_backend")
		defer exec(t, conn, "reset role")
		v := read(t, conn)
		if !near(float64(v.Records.Count.Value), 1000, 10) || v.Records.HeapBytes == 0 || v.InFlight.Transactions != 1 || v.InFlight.Keys != 1 {
			t.Errorf("%+v", v)
		}
		for what, figure := range map[string]struct {
			known bool
			note  string
			says  string
		}{
			"expired":        {v.Records.Expired.Known(), v.Records.Expired.Note, "may not read idem.records"},
			"oldest expired": {v.Records.OldestExpired.Known(), v.Records.OldestExpired.Note, "may not read idem.records"},
			"operations":     {v.Operations.Known(), v.Operations.Note, "may not read idem.operations"},
			"messages":       {v.Messages.Known(), v.Messages.Note, "may not read idem.outbox"},
			"sweeps":         {v.Purge.Sweeps.Known(), v.Purge.Sweeps.Note, "may not read idem.sweeps"},
			"purge lag":      {v.Purge.Lag.Known(), v.Purge.Lag.Note, "may not read idem.sweeps"},
			"purge speed":    {v.Purge.Rate.Known(), v.Purge.Rate.Note, "may not read idem.sweeps"},
			"oldest call":    {v.InFlight.Oldest.Known(), v.InFlight.Oldest.Note, "pg_read_all_stats"},
		} {
			if figure.known || !strings.Contains(figure.note, figure.says) {
				t.Errorf("%s: known %t, %q; want a note that says %q", what, figure.known, figure.note, figure.says)
			}
		}
	})
}

// holding calls f while a call of Do holds a key.
func holding(t *testing.T, pool *pgxpool.Pool, f func()) {
	t.Helper()
	_, err := idem.Do(t.Context(), pool, "s", "held", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
		f()
		return idem.Response{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRead_CountsTransactionsInFlight(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(t, conn, "select pg_advisory_lock(7)") // a lock of the application, not of a key
	defer exec(t, conn, "select pg_advisory_unlock(7)")
	nothing := stats.InFlight{Oldest: stats.Figure[time.Duration]{Quality: stats.Exact}}
	if diff := cmp.Diff(nothing, read(t, pool).InFlight); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	holding(t, pool, func() {
		flight := read(t, pool).InFlight
		if flight.Transactions != 1 || flight.Keys != 1 || flight.Oldest.Quality != stats.Exact || flight.Oldest.Value <= 0 {
			t.Errorf("%+v, want one transaction with one key", flight)
		}
	})
	if diff := cmp.Diff(nothing, read(t, pool).InFlight); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

func TestRead_PurgeLagAndRateComeFromItsSweeps(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, "alter table idem.records set (autovacuum_enabled = off)")
	fillAnalyzed(t, pool, 1000, 0.5)
	if v := read(t, pool); v.Purge.Lag.Quality != stats.Estimate || !near(v.Purge.Lag.Value.Hours(), 10, 0.3) || v.Purge.Rate.Known() {
		t.Errorf("without a sweep: lag %+v, speed %+v", v.Purge.Lag, v.Purge.Rate)
	}
	exec(t, pool, `insert into idem.sweeps (name, sweeper, seen_at, started_at, progressed_at, total_pages, pages, deleted)
		values ('records', gen_random_uuid(), now() - interval '5 seconds', now() - interval '110 seconds', now() - interval '10 seconds', 20, 10, 300)`)
	v := read(t, pool)
	if v.Purge.Lag.Quality != stats.Estimate || !near(v.Purge.Rate.Value, 3, 0.1) {
		t.Errorf("in the first sweep: lag %+v, speed %+v", v.Purge.Lag, v.Purge.Rate)
	}
	if s := v.Purge.Sweeps.Value[0]; !s.InProgress || s.Pages != 10 || s.TotalPages != 20 || s.Deleted != 300 || s.Duration.Round(time.Second) != 100*time.Second || s.Idle < 5*time.Second {
		t.Errorf("in the first sweep: %+v", s)
	}
	exec(t, pool, `update idem.sweeps set started_at = null, sweeper = null, seen_at = null, last_started_at = now() - interval '2 hours',
		last_finished_at = now() - interval '2 hours' + interval '100 seconds', last_deleted = 500`)
	v = read(t, pool)
	if v.Purge.Lag.Quality != stats.Exact || v.Purge.Lag.Value.Round(time.Minute) < 2*time.Hour || v.Purge.Lag.Value > 3*time.Hour || !near(v.Purge.Rate.Value, 5, 0.01) {
		t.Errorf("after a sweep: lag %+v, speed %+v", v.Purge.Lag, v.Purge.Rate)
	}
}

func TestRead_AddsUpPartitions(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	fill(t, pool, 1000, 0.5)
	counted(t, pool, 1000, func(on querier) {
		for _, sql := range []string{
			"alter table idem.records rename to old",
			"create table idem.records (like idem.old including defaults, primary key (scope, key)) partition by hash (scope, key)",
			"create table idem.records_0 partition of idem.records for values with (modulus 2, remainder 0)",
			"create table idem.records_1 partition of idem.records for values with (modulus 2, remainder 1)",
			"insert into idem.records select * from idem.old",
		} {
			exec(t, on, sql)
		}
	})
	exec(t, pool, "analyze idem.records_0")
	exec(t, pool, "analyze idem.records_1")
	holding(t, pool, func() {
		v := read(t, pool)
		if !near(float64(v.Records.Count.Value), 1000, 10) || !near(float64(v.Records.Expired.Value), 500, 30) || v.InFlight.Transactions != 1 {
			t.Errorf("%+v", v)
		}
	})
}

func TestRead_ReturnsErrNoSchema(t *testing.T) {
	t.Parallel()
	_, err := stats.Read(t.Context(), pgtest.Open(t, pgtest.EmptyDSN(t)))
	if !errors.Is(err, stats.ErrNoSchema) {
		t.Errorf("err = %v", err)
	}
}

func TestTryRead_OneReadsAtATime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgtest.DSN(t)
	second := pgtest.Open(t, dsn)
	during := &duringRead{do: func() {
		if _, ok, err := stats.TryRead(ctx, second); ok || err != nil {
			t.Errorf("while another process reads: ok %t, %v", ok, err)
		}
	}}
	first := pgtest.Open(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.Tracer = during })
	if s, ok, err := stats.TryRead(ctx, first); !ok || err != nil || s.ReadAt.IsZero() {
		t.Errorf("the first: ok %t, %v", ok, err)
	}
	if !during.done {
		t.Error("the second was not called during the first")
	}
	if _, ok, err := stats.TryRead(ctx, second); !ok || err != nil {
		t.Errorf("afterwards: ok %t, %v", ok, err)
	}
}

// duringRead is a tracer that calls do once, before the first statement of Read.
type duringRead struct {
	do   func()
	done bool
}

func (d *duringRead) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !d.done && strings.Contains(data.SQL, "-- name: Parts") {
		d.done = true
		d.do()
	}
	return ctx
}

func (d *duringRead) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestRead_CountsMessages(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if v := read(t, pool); v.Messages != (stats.Figure[stats.Messages]{Quality: stats.Exact}) {
		t.Errorf("of an empty database: %+v", v.Messages)
	}
	exec(t, pool, `insert into idem.outbox (created_at, id, held, aggregatetype, aggregateid, type)
		select now() - i * interval '100 s', gen_random_uuid(), i <= 2, 't', '', '' from generate_series(5, 1, -1) i`)
	exec(t, pool, `insert into idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at, redrive_at)
		select case when i <= 3 then 'outbox' else 'inbox' end, '', 's', i::text, '', '', '', '', 1, now(), now(), case when i = 9 then now() end from generate_series(1, 9) i`)
	exec(t, pool, `insert into idem.inbox (consumer, source, id, hash, state, since, expires_at)
		select 'c', 's', i::text, '', case when i <= 2 then 'failing' else 'handled' end, now() - i * interval '100 s', now() from generate_series(5, 1, -1) i`)
	v := read(t, pool)
	m := v.Messages.Value
	if m.Waiting != 3 || m.Held != 2 || m.OutboxDead != 3 || m.InboxDead != 5 || !near(m.Oldest.Seconds(), 530, 30) || !near(m.FailingFor.Seconds(), 230, 30) {
		t.Errorf("%+v", v.Messages)
	}
	exec(t, pool, "delete from idem.outbox where not held")
	if m := read(t, pool).Messages.Value; !near(m.Oldest.Seconds(), 230, 30) {
		t.Errorf("held alone: %+v", m)
	}
}

func TestRead_WithoutPrivileges(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(t, conn, "grant usage on schema idem to pg_signal_backend")
	exec(t, conn, "grant select on idem.operations, idem.leases, idem.audit to pg_signal_backend")
	exec(t, conn, "set role pg_signal_backend")
	defer exec(t, conn, "reset role")
	v := read(t, conn)
	if v.Purge.Sweeps.Known() || !v.Operations.Known() || v.Messages.Known() || !v.Acts.Known() || !strings.Contains(v.Messages.Note, "may not read idem.outbox") {
		t.Errorf("%+v, %+v, %+v, %+v", v.Purge.Sweeps, v.Operations, v.Messages, v.Acts)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	v = read(t, tx)
	for _, note := range []string{v.Operations.Note, v.Messages.Note, v.Acts.Note} {
		if !strings.Contains(note, "aborted the transaction") {
			t.Errorf("in a transaction: %q", note)
		}
	}
}

func TestRead_ListsEveryTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	rows, _ := pool.Query(t.Context(), "select relname::text from pg_class where relnamespace = 'idem'::regnamespace and relkind = 'r' order by relname")
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	read := func() []string {
		v, err := stats.Read(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, table := range v.Tables {
			got = append(got, table.Name)
			if table.IndexBytes == 0 {
				t.Errorf("%s has no index", table.Name)
			}
		}
		return got
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	if _, err := pool.Exec(t.Context(), `alter table idem.inbox rename to whole;
		create table idem.inbox (like idem.whole, primary key (consumer, source, id)) partition by hash (consumer, source, id);
		create table idem.inbox_0 partition of idem.inbox for values with (modulus 2, remainder 0);
		create table idem.inbox_1 partition of idem.inbox for values with (modulus 2, remainder 1); drop table idem.whole`); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("tables, one of them partitioned (-want +got):\n%s", diff)
	}
}

func TestRead_DelayedMessagesWaitOnceTheyAreDue(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, `insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
		select now() + i * interval '1 hour', now() - interval '1 day', gen_random_uuid(), 't', '', '' from generate_series(1, 3) i`)
	if m := read(t, pool).Messages.Value; m != (stats.Messages{Delayed: 3}) {
		t.Errorf("%+v", m)
	}
	exec(t, pool, "update idem.delayed set not_before = not_before - interval '90 min'")
	if m := read(t, pool).Messages.Value; m.Delayed != 2 || m.Waiting != 1 || !near(m.Oldest.Minutes(), 31, 1) {
		t.Errorf("nothing relays what is due: %+v", m)
	}
}

func TestRead_CountsActsOfTheLastDay(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, `insert into idem.audit (at, id, act, outcome, role, person, reason, step, scope, key, side, consumer, source, message_id)
		select now() - i * interval '10 h', gen_random_uuid(), case when i = 2 then 'drop' else 'retry' end, '', '', '', '', '', '', '', '', '', '', '' from generate_series(1, 3) i`)
	want := []stats.ActCount{{Act: "cancel"}, {Act: "drop", Count: 1}, {Act: "evict"}, {Act: "forget"}, {Act: "redrive"}, {Act: "resolve"}, {Act: "retry", Count: 1}}
	if diff := cmp.Diff(want, read(t, pool).Acts.Value); diff != "" {
		t.Error(diff)
	}
}

// A person can set expires_at to infinity or -infinity by SQL.
func TestRead_AcceptsInfiniteExpiryTimes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	fillAnalyzed(t, pool, 1000, 0.3,
		`update idem.records set expires_at = 'infinity' where ctid in (select ctid from idem.records where expires_at > now() limit 200)`,
		`update idem.records set expires_at = '-infinity' where ctid in (select ctid from idem.records where expires_at < now() limit 50)`)
	v, err := stats.Read(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if e := v.Records.Expired; !e.Known() || e.Value < 250 || e.Value > 350 {
		t.Errorf("%+v", e)
	}
}

func TestRead_LeavesOutRecordsPurgedSinceTheAnalyze(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, "alter table idem.records set (autovacuum_enabled = off)")
	fillAnalyzed(t, pool, 1000, 0.5)
	exec(t, pool, "delete from idem.records where expires_at < now() - interval '1 hour'")
	exec(t, pool, `insert into idem.sweeps (name, last_started_at, last_finished_at, last_deleted)
		values ('records', now(), now() + interval '1 second', 450)`)
	v := read(t, pool)
	if v.Records.OldestExpired.Value < 50*time.Minute || v.Records.OldestExpired.Value > 70*time.Minute {
		t.Errorf("oldest expired: %+v, want about the hour that is left", v.Records.OldestExpired)
	}
	if share := float64(v.Records.Expired.Value) / float64(v.Records.Count.Value); !near(share, 50.0/550, 0.03) {
		t.Errorf("expired: %+v of %+v, want a share of about %v", v.Records.Expired, v.Records.Count, 50.0/550)
	}
}
