package purge

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestOnce_DeletesOnlyRecordsExpiredForAnHour(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"prepared": pgx.QueryExecModeCacheStatement, "cache describe": pgx.QueryExecModeCacheDescribe,
		"exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			h.records(900, "live", "completed", "-1 hour")
			h.records(900, "just expired", "completed", "59 minutes")
			h.records(900, "expired", "completed", "61 minutes")
			h.records(900, "rejected", "failed", "2 hours")
			h.records(900, "processing", "processing", "1 year")
			h.records(900, "locked", "completed", "2 hours")
			h.records(900, "live too", "completed", "-1 second")
			holder := h.begin()
			if _, err := holder.Exec(t.Context(), "select 1 from idem.records where key like 'locked%' for key share"); err != nil {
				t.Fatal(err)
			}
			rep := h.once(swift())
			h.wantCounts(rep, Finished, Counts{Deleted: 1800, Kept: 3600, Skipped: 900})
			if rep.Pages != h.pages() {
				t.Errorf("%d pages were walked, of %d", rep.Pages, h.pages())
			}
			left := map[string]int64{"live": 900, "just expired": 900, "processing": 900, "locked": 900, "live too": 900}
			h.wantLeft(left)
			holder.Rollback(t.Context())
			h.wantCounts(h.once(swift()), Finished, Counts{Deleted: 900, Kept: 3600})
			delete(left, "locked")
			h.wantLeft(left)
			h.wantCounts(h.once(swift()), Finished, Counts{Kept: 3600})
		})
	}
}

func TestDryRun_CountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.records(500, "live", "completed", "-1 hour")
	h.records(500, "expired", "completed", "2 hours")
	h.exec("alter database " + pgx.Identifier{h.pool.Config().ConnConfig.Database}.Sanitize() + " set default_transaction_read_only = on")
	h.pool.Reset()
	o := swift()
	o.DryRun = true
	rep := h.once(o)
	h.wantCounts(rep, Finished, Counts{Deleted: 500, Kept: 500})
	if rep.Pages != h.pages() || !rep.DryRun {
		t.Errorf("%+v", rep)
	}
	if n := h.count("select count(*) from idem.sweeps"); n != 0 {
		t.Error("it has left a row in idem.sweeps")
	}
	h.wantLeft(map[string]int64{"live": 500, "expired": 500})
}

func TestOnce_SweepsAnEmptyTable(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 2 {
		h.wantCounts(h.once(Options{MaxLag: -1}), Finished, Counts{})
	}
}

func TestOnce_SweepsEachPartition(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`drop table idem.records;
		create table idem.records (scope text collate "C", key text collate "C", hash bytea, execution_id uuid, created_at timestamptz,
			expires_at timestamptz, state text, status int, completed_at timestamptz, header jsonb, body bytea, primary key (scope, key))
			partition by hash (scope, key);
		create schema "else where";
		create table "else where"."the ""first""" partition of idem.records for values with (modulus 4, remainder 0);
		create table idem.records_b partition of idem.records for values with (modulus 4, remainder 2);
		create table idem.rest partition of idem.records for values with (modulus 2, remainder 1) partition by hash (scope, key);
		create table idem.rest_0 partition of idem.rest for values with (modulus 2, remainder 0);
		create table idem.rest_1 partition of idem.rest for values with (modulus 2, remainder 1);
		-- A vacuum would give the pages at the end back before they are counted.
		alter table "else where"."the ""first""" set (autovacuum_enabled = off);
		alter table idem.records_b set (autovacuum_enabled = off);
		alter table idem.rest_0 set (autovacuum_enabled = off);
		alter table idem.rest_1 set (autovacuum_enabled = off)`)
	h.records(4000, "live", "completed", "-1 hour")
	h.records(4000, "expired", "completed", "2 hours")
	o := swift()
	o.DryRun = true
	h.wantCounts(h.once(o), Finished, Counts{Deleted: 4000, Kept: 4000})

	// The sweep is stopped once in the middle of each part, and resumes there.
	var total Counts
	ended := map[Reason]int{}
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		o := swift()
		o.Pages = 9
		o.Progress = func(Progress) { cancel() }
		rep, err := Once(ctx, h.pool, o)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		total.add(rep.Counts)
		ended[rep.Tables[0].Ended]++
		if rep.Tables[0].Ended == Finished {
			break
		}
	}
	pages := h.count(`select sum(pg_relation_size(relid) / current_setting('block_size')::int) from pg_partition_tree('idem.records') where isleaf`)
	if diff := cmp.Diff(Counts{Deleted: 4000, Kept: 4000, Pages: pages}, total); diff != "" || ended[Finished] != 1 || ended[Stopped] < 20 {
		t.Errorf("%v, all runs together (-want +got):\n%s", ended, diff)
	}
	h.wantLeft(map[string]int64{"live": 4000})
}

func TestSweep_StoresPositionAndCounts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.records(3000, "live", "completed", "-1 hour")
	h.records(3000, "expired", "completed", "2 hours")
	type row struct {
		Under, Swept, Last                 bool
		Part                               string
		Block, Pages, Total, Deleted, Kept int64
		LastPages, LastDeleted, LastKept   int64
		DeletedTotal                       int64
	}
	read := func() (r row) {
		t.Helper()
		rows, _ := h.pool.Query(context.Background(), `select started_at is not null and started_at <= progressed_at, sweeper is not null,
			coalesce(last_started_at < last_finished_at, false),
			part, block, pages, total_pages, deleted, kept, last_pages, last_deleted, last_kept, deleted_total from idem.sweeps where name = 'records'`)
		r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := swift()
	o.Pages = 32
	o.Progress = func(p Progress) {
		during := read()
		want := row{Under: true, Swept: true, Part: "idem.records", Block: p.Pages, Pages: p.WalkedPages, Total: h.pages(),
			Deleted: p.Deleted, Kept: p.Kept, DeletedTotal: p.Deleted}
		if diff := cmp.Diff(want, during, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Last" }, cmp.Ignore())); diff != "" {
			t.Errorf("while it sweeps (-want +got):\n%s", diff)
		}
		if p.TotalPages != h.pages() || p.Duration <= 0 || p.PagesAPortion < 1 || p.Waiting != "" || p.Table != "records" {
			t.Errorf("progress: %+v", p)
		}
		if p.Pages > 90 {
			cancel()
		}
	}
	first, err := Once(ctx, h.pool, o)
	if !errors.Is(err, context.Canceled) || first.Tables[0].Ended != Stopped || first.Tables[0].Resumed {
		t.Fatalf("%+v, %v", first, err)
	}
	if between := read(); between.Swept || !between.Under || between.Block != first.Pages {
		t.Errorf("after a run that was stopped at %d: %+v", first.Pages, between)
	}
	o.Progress = nil
	second := h.once(o)
	if !second.Tables[0].Resumed || second.Duration <= 0 || second.Tables[0].Working <= 0 {
		t.Errorf("%+v", second)
	}
	want := row{Last: true, LastPages: h.pages(), LastDeleted: 3000, LastKept: 3000, DeletedTotal: 3000}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("after a whole sweep (-want +got):\n%s", diff)
	}
	if first.Pages+second.Pages != h.pages() || first.Deleted+second.Deleted != 3000 {
		t.Errorf("two runs: %+v, %+v", first.Counts, second.Counts)
	}
}

func TestOnce_StopsAtMaxAndTheNextResumes(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	o := swift()
	o.Max, o.Pages = time.Nanosecond, 1
	h.wantCounts(h.once(o), TimeIsUp, Counts{})
	o.Max = time.Hour
	h.wantCounts(h.once(o), Finished, Counts{Deleted: 3000})
}

func TestSweep_TruncatedTableIsNoError(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	o := swift()
	o.Pages = 2
	o.Progress = func(Progress) { h.exec("truncate idem.records") }
	h.wantCounts(h.once(o), Finished, Counts{Deleted: h.count("select deleted_total from idem.sweeps where name = 'records'")})
	h.wantLeft(map[string]int64{})
}

// listPartitioned is the SQL that replaces the records by a table with partitions by scope.
const listPartitioned = `create table parted (like idem.records including all) partition by list (scope);
	drop table idem.records;
	alter table parted rename to records;
	alter table records set schema idem;`

// Operators choose the names of partitions.
func TestOnce_SweepsPartitionsOfAnyName(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(listPartitioned + `
		create schema "o'x\";
		create table "o'x\"."p$1 %s ""$2 -- /* '" partition of idem.records for values in ('a');
		create table idem."Ü ""q"" \" partition of idem.records default`)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		h.records(300, "expired", "completed", "2 hours")
		h.exec("update idem.records set scope = 'a' where substr(key, length(key)) < '5'")
		pool := h.open(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		if rep, err := Once(t.Context(), pool, swift()); err != nil || rep.Deleted != 300 {
			t.Errorf("%v: %v, %v", mode, rep, err)
		}
	}
}

func TestSweep_DroppedPartitionIsNoError(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(listPartitioned + `
		create table idem.a partition of idem.records for values in ('a');
		create table idem.b partition of idem.records for values in ('b');
		create table idem.rest partition of idem.records default`)
	h.records(3000, "expired", "completed", "2 hours")
	for _, scope := range []string{"a", "b"} {
		h.exec("update idem.records set scope = $1 where ctid in (select ctid from idem.rest limit 1000)", scope)
	}
	o := swift()
	o.Pages = 2
	dropped := false
	o.Progress = func(Progress) {
		if !dropped {
			dropped = true
			h.exec("drop table idem.a")
		}
	}
	rep := h.once(o)
	if rep.Tables[0].Ended != Finished || rep.Deleted <= 2000 || rep.Deleted >= 3000 {
		t.Errorf("%v", rep)
	}
	h.wantLeft(map[string]int64{})
}

func TestSweep_MissingSweepsTableIsAnError(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	o := swift()
	o.Pages = 2
	away := false
	o.Progress = func(Progress) {
		if !away {
			away = true
			h.exec("alter table idem.sweeps rename to away")
		}
	}
	if rep, err := Once(t.Context(), h.pool, o); err == nil || rep.Tables[0].Ended != Failed {
		t.Errorf("%v, %v", rep, err)
	}
}

func TestOptions_RefusesInvalidValues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for name, o := range map[string]Options{
		"Every": {Every: -1}, "Grace": {Grace: -1}, "Patience": {Patience: -1}, "Max": {Max: -1}, "Pages": {Pages: -1},
		"a Share below": {Share: -0.1}, "a Share above": {Share: 1.1},
	} {
		if _, err := Once(t.Context(), pool, o); err == nil {
			t.Errorf("%s: Once takes it", name)
		}
		if err := Run(t.Context(), pool, o); err == nil {
			t.Errorf("%s: Run takes it", name)
		}
	}
	if _, err := Once(t.Context(), nil, Options{}); err == nil {
		t.Error("no pool: Once takes it")
	}
	for _, o := range []Options{{DryRun: true}, {Max: time.Second}} {
		if err := Run(t.Context(), pool, o); err == nil {
			t.Errorf("Run takes %+v", o)
		}
	}
}
