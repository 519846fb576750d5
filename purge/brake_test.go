package purge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/waiting"
)

// reasons collects for what a sweep has waited, and calls then once for each.
func reasons(then func(Reason)) (func(Progress), *[]Reason) {
	var seen []Reason
	return func(p Progress) {
		if p.Waiting != "" && !slices.Contains(seen, p.Waiting) {
			seen = append(seen, p.Waiting)
			then(p.Waiting)
		}
	}, &seen
}

// The test uses a tiny MaxLag, so that other sweeps on the server are not affected.
func TestSweep_WaitsForALaggingStandbyAndReportsIt(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 4000)
	position := h.count("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8")
	s := h.newStandby(t, "the slow one")
	s.hasReplayed(position - 1<<20)
	h.awaitLag(t, "the slow one", position)
	o := swift()
	o.MaxLag = 1 << 20
	var waiting string
	var seen *[]Reason
	o.Progress, seen = reasons(func(reason Reason) {
		if err := h.pool.QueryRow(context.Background(), "select waiting_for from idem.sweeps where name = 'records'").Scan(&waiting); err != nil {
			t.Error(err)
		}
		s.hasReplayed(1 << 62)
	})
	rep := h.once(o)
	h.wantCounts(rep, Finished, Counts{Deleted: 4000})
	if swept := rep.Tables[0]; swept.Standby != "the slow one" || swept.Waited[Replication] <= 0 || waiting != "replication" || swept.Hidden != 0 {
		t.Errorf("%+v, waiting_for %s, %v", swept, waiting, *seen)
	}
	if n := h.count("select count(*) from idem.sweeps where waiting_for is not null"); n != 0 {
		t.Error("idem.sweeps says that it still waits")
	}
}

func (h *house) awaitLag(t *testing.T, standby string, atLeast int64) {
	t.Helper()
	waiting.Until(t, "the server knows of the lag", func() bool {
		return h.count("select count(*) from pg_stat_replication where application_name = $1 and replay_lsn < pg_current_wal_lsn()", standby) == 1
	})
}

func TestSweep_ReportsStandbysThatTheRoleCannotSee(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 100)
	h.newStandby(t, "hidden").hasReplayed(1 << 62) // so that a purge that sees it need not wait
	o := swift()
	o.MaxLag = 1
	rep := h.onceOn(h.asRole(t, "select, update, delete", "select, insert, update"), o)
	h.wantCounts(rep, Finished, Counts{Deleted: 100})
	if rep.Tables[0].Hidden < 1 {
		t.Errorf("%+v", rep)
	}
}

func TestSweep_WaitsForVacuum(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.records(6000, "dead", "completed", "2 hours")
	h.exec("delete from idem.records")
	h.records(4000, "expired", "completed", "2 hours")
	h.awaitDead(t, 6000)
	o := swift()
	o.MaxDead = 5000 // more than it leaves itself
	var seen *[]Reason
	o.Progress, seen = reasons(func(Reason) { h.exec("vacuum idem.records") })
	rep := h.once(o)
	h.wantCounts(rep, Finished, Counts{Deleted: 4000})
	if !slices.Equal(*seen, []Reason{Vacuum}) || rep.Tables[0].Waited[Vacuum] <= 0 {
		t.Errorf("%+v, %v", rep, *seen)
	}
}

func (h *house) awaitDead(t *testing.T, n int64) {
	t.Helper()
	waiting.Until(t, "the server counts dead rows", func() bool {
		return h.count("select n_dead_tup from pg_stat_user_tables where relid = 'idem.records'::regclass") >= n
	})
}

func TestSweep_EndsAfterPatience(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.records(100, "dead", "completed", "2 hours")
	h.exec("delete from idem.records")
	h.records(100, "expired", "completed", "2 hours")
	h.awaitDead(t, 100)
	o := swift()
	o.MaxDead, o.Patience = 10, 2*time.Second // of which little may be left for the wait where the server is slow
	rep := h.once(o)
	h.wantCounts(rep, Vacuum, Counts{})
	if waited := rep.Tables[0].Waited[Vacuum]; waited <= 0 {
		t.Errorf("it waited for %v", waited)
	}
	o.MaxDead = -1
	h.wantCounts(h.once(o), Finished, Counts{Deleted: 100})
}

func TestSweep_WaitsForALockedTable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   string
		dryRun bool
	}{
		"as CREATE INDEX locks it":              {"share", false},
		"as VACUUM FULL locks it, in a dry run": {"access exclusive", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouseWithExpired(t, 4000)
			release := h.lock(test.mode)
			o := swift()
			o.DryRun = test.dryRun
			var seen *[]Reason
			o.Progress, seen = reasons(func(Reason) { release() })
			rep := h.once(o)
			h.wantCounts(rep, Finished, Counts{Deleted: 4000})
			if !slices.Equal(*seen, []Reason{Lock}) {
				t.Errorf("%v, %+v", *seen, rep)
			}
		})
	}
}

// lock locks the records in another transaction, until release is called.
func (h *house) lock(mode string) (release func()) {
	h.t.Helper()
	holder := h.begin()
	if _, err := holder.Exec(context.Background(), "lock table idem.records in "+mode+" mode"); err != nil {
		h.t.Fatal(err)
	}
	return func() { holder.Rollback(context.Background()) }
}

// Under VACUUM FULL not even the size of the table can be read. The next run tries again.
func TestSweep_EndsAtOnceIfVacuumFullHoldsTheTable(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 100)
	release := h.lock("access exclusive")
	h.wantCounts(h.once(swift()), Lock, Counts{})
	release()
	h.wantCounts(h.once(swift()), Finished, Counts{Deleted: 100})
}

// A portion that times out is repeated with half the pages, down to one page.
func TestSweep_HalvesPortionsThatTimeOut(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 500)
	h.exec(`create function public.slow() returns bool language plpgsql cost 10000 as $$
		declare calls int := coalesce(nullif(current_setting('test.calls', true), ''), '0')::int + 1;
		begin
			perform set_config('test.calls', calls::text, true);
			if calls > 200 then -- two pages or so, because each row is looked at several times
				raise query_canceled; -- as statement_timeout does, however fast the machine is
			end if;
			return true;
		end $$`)
	slow := records
	slow.due += " AND public.slow()"
	s := h.sweep(swift(), slow)
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.did.Deleted != 500 || s.pace.pages >= 32 {
		t.Errorf("%+v, %d pages", s.did, s.pace.pages)
	}

	h.records(500, "expired", "completed", "2 hours")
	h.exec("create or replace function public.slow() returns bool language plpgsql cost 10000 as 'begin perform pg_sleep(0.01); return true; end'")
	s = h.sweep(swift(), slow)
	s.limits.WorkLimit = "1"
	if err := s.run(t.Context()); err == nil || s.did.Ended != Failed || s.pace.pages != 1 {
		t.Errorf("%v: %+v, %d pages", err, s.did, s.pace.pages)
	}
}

func TestSweep_SharesAPoolOfOneConnection(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 4000)
	one := h.open(maxConns(1))
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 2 {
		calls.Go(func() {
			for ctx.Err() == nil {
				if _, err := one.Exec(context.Background(), "select 1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	o := swift()
	o.Pages = 50
	h.wantCounts(h.onceOn(one, o), Finished, Counts{Deleted: 4000})
}

func TestSweep_WaitsForAFreeConnection(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 100)
	one := h.open(maxConns(1))
	o := swift()
	began := false
	var conn *pgxpool.Conn
	o.Progress = func(p Progress) {
		var err error
		switch {
		case p.Waiting == "" && !began:
			began = true
			if conn, err = one.Acquire(context.Background()); err != nil {
				t.Error(err)
			}
		case p.Waiting == Pool && conn != nil:
			conn.Release()
			conn = nil
		}
	}
	o.Pages = 1
	rep := h.onceOn(one, o)
	h.wantCounts(rep, Finished, Counts{Deleted: 100})
	if rep.Tables[0].Waited[Pool] <= 0 {
		t.Errorf("%+v", rep)
	}
}

func TestPace_PauseIsProportionalToWork(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		share                  float64
		took, otherwise, pause time.Duration
	}{
		{1, time.Second, 0, 0}, {0.5, 20, 0, 20}, {0.25, 20, 0, 60}, {0.25, 20, 7, 53}, {0.25, 20, 90, 0}, {0.25, 20, -7, 60},
		{0.01, 10 * time.Second, 0, maxPause}, {0.25, 0, 0, 0},
		{1e-15, time.Millisecond, 0, maxPause}, {5e-324, time.Millisecond, 0, maxPause}, {5e-324, 0, 0, 0},
	} {
		p := newPace(&Options{Pages: 512, Share: test.share})
		if pause := p.after(test.took, test.otherwise); pause != test.pause {
			t.Errorf("share %v, %v of work and %v besides: a pause of %v, want %v", test.share, test.took, test.otherwise, pause, test.pause)
		}
	}
	p := newPace(&Options{Pages: 100, Share: 1})
	for range 10 {
		p.after(portionTime/4, 0)
	}
	if p.pages != 100 {
		t.Errorf("quick portions have %d pages, want as many as allowed", p.pages)
	}
	p.after(portionTime, 0)
	if p.pages != 100 {
		t.Errorf("portions that take as long as they should have become %d pages", p.pages)
	}
	for range 10 {
		p.after(time.Second, 0)
	}
	if p.pages != 1 {
		t.Errorf("slow portions have %d pages", p.pages)
	}
}

func TestSweep_CanceledContextReleasesTheSweep(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(8))
	h.records(20, "expired", "completed", "2 hours")
	paused, release := h.paused("expired")
	s := h.sweep(swift(), paused)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	h.awaitBlocked("advisory")
	cancel()
	if err := await(t, "the sweep", done); !errors.Is(err, context.Canceled) || s.did.Ended != Stopped {
		t.Errorf("%v, %+v", err, s.did)
	}
	release()
	for deadline := time.Now().Add(limit); len(h.left()) > 0; { // until the server has noticed, the rows are locked
		if rep := h.once(swift()); rep.Tables[0].Ended != Finished || time.Now().After(deadline) {
			t.Fatalf("%+v", rep)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if rep, err := Once(ended, h.pool, swift()); !errors.Is(err, context.Canceled) || rep.Pages != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// asRole opens a pool as a role with these privileges on idem.records and idem.sweeps.
func (h *house) asRole(t *testing.T, onRecords, onSweeps string) *pgxpool.Pool {
	t.Helper()
	role := pgx.Identifier{"purger_" + newID()}.Sanitize()
	h.exec("create role " + role)
	h.exec("grant usage on schema idem to " + role)
	if onRecords != "" {
		h.exec("grant " + onRecords + " on idem.records to " + role)
	}
	if onSweeps != "" {
		h.exec("grant " + onSweeps + " on idem.sweeps to " + role)
	}
	pool := h.open(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["role"] = role[1 : len(role)-1]
	})
	t.Cleanup(func() {
		pool.Close()
		h.exec("drop owned by " + role)
		h.exec("drop role " + role)
	})
	return pool
}
