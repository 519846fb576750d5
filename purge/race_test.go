package purge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/waiting"
)

var answer = func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil }

// paused is the table of records, of which the first row named stops a statement until the test
// lets it go on.
func (h *house) paused(name string) (table, func()) {
	h.t.Helper()
	const lock = 5_000_000
	h.exec(fmt.Sprintf(`create function public.pause(key text) returns bool language plpgsql cost 10000 as
		'begin if key = ''%s 1'' then perform pg_advisory_xact_lock(%d); end if; return true; end'`, name, lock))
	conn, err := h.pool.Acquire(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := conn.Exec(context.Background(), "select pg_advisory_lock($1)", lock); err != nil {
		h.t.Fatal(err)
	}
	t := records
	t.due += " AND public.pause(r.key)"
	var once sync.Once
	release := func() {
		once.Do(func() {
			_, _ = conn.Exec(context.Background(), "select pg_advisory_unlock($1)", lock)
			conn.Release()
		})
	}
	h.t.Cleanup(release)
	return t, release
}

// awaitBlocked waits until a session waits for a lock of this kind.
func (h *house) awaitBlocked(locktype string) {
	h.t.Helper()
	waiting.Until(h.t, "a session waits", func() bool {
		return h.count(`select count(*) from pg_locks l join pg_stat_activity a using (pid)
			where a.datname = current_database() and not l.granted and locktype = $1`, locktype) > 0
	})
}

// sweep makes the sweep of a table, with time enough to be stopped by a test.
func (h *house) sweep(o Options, t table) *sweep {
	h.t.Helper()
	complete, err := o.complete(h.pool)
	if err != nil {
		h.t.Fatal(err)
	}
	s := newSweep(h.pool, complete, t, newID(), 0)
	s.limits = db.LimitPortion{LockLimit: "30000", WorkLimit: "30000", IdleLimit: "30000"}
	return s
}

func TestPortion_KeepsARecordClaimedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHouse(t, maxConns(8))
	h.records(20, "expired", "completed", "2 hours")
	paused, release := h.paused("expired")
	s := h.sweep(swift(), paused)
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	h.awaitBlocked("advisory") // the statement has its snapshot, in which all of them have expired
	if _, err := idem.Do(ctx, h.pool, "a scope", "expired 20", idem.Hash{1}, answer); err != nil {
		t.Fatal(err)
	}
	holder := h.begin()
	if _, err := idem.DoTx(ctx, holder, "a scope", "expired 19", idem.Hash{1}, answer); err != nil {
		t.Fatal(err)
	}
	release()
	if err := await(t, "the sweep", done); err != nil {
		t.Fatal(err)
	}
	if err := holder.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	h.wantCounts(Report{Counts: s.did.Counts, Tables: []Sweep{s.did}}, Finished, Counts{Deleted: 18, Skipped: 2})
	if n := h.count("select count(*) from idem.records where key in ('expired 19', 'expired 20') and expires_at > now()"); n != 2 {
		t.Errorf("%d of the 2 records taken over are left", n)
	}
}

// A call claims its key at the moment at which a purge deletes the record.
func TestPortion_CallWaitsForItAndExecutesOnce(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"the deletion is committed": true, "the deletion is rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			h := newHouseWithExpired(t, 3)
			p, engine := h.portion(t)
			tx, err := engine.Open(ctx, limits, p)
			if err != nil || p.counts.Deleted != 3 {
				t.Fatalf("%+v, %v", p.counts, err)
			}
			defer tx.Close()
			var ran atomic.Int64
			done := make(chan error, 1)
			go func() {
				res, err := idem.Do(ctx, h.pool, "a scope", "expired 2", idem.Hash{1}, func(pgx.Tx) (idem.Response, error) {
					ran.Add(1)
					return idem.Response{}, nil
				})
				if err == nil && res.Replayed {
					err = fmt.Errorf("replayed: %+v", res)
				}
				done <- err
			}()
			h.awaitBlocked("transactionid")
			if commits {
				err = tx.Commit(ctx)
			} else {
				tx.Close()
			}
			if err := await(t, "the call", done); err != nil || ran.Load() != 1 {
				t.Errorf("fn ran %d times, %v", ran.Load(), err)
			}
			if n := h.count("select count(*) from idem.records where key = 'expired 2' and expires_at > now()"); n != 1 {
				t.Errorf("%d records of the key", n)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// portion is all pages of the records, to be swept in one transaction.
func (h *house) portion(t *testing.T) (*portion, *txn.Engine) {
	t.Helper()
	engine := &txn.Engine{Pool: h.pool, Options: deleting, Limits: txn.DefaultLimits}
	part := &db.Part{Relation: "idem.records"}
	if err := engine.Query(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	return &portion{statement: deletionOf(records, part), limits: limits, keep: time.Hour, to: part.Pages}, engine
}

func TestPortion_ServerEndsASilentClient(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3)
	p, engine := h.portion(t)
	p.limits.IdleLimit = "50"
	tx, err := engine.Open(t.Context(), p.limits, p)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	// This statement waits for the rows like a claim.
	h.exec("update idem.records set status = 7")
	h.wantLeft(map[string]int64{"expired": 3})
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("it was committed")
	}
}

// Callers take expired records over from each other and replay them, as fast as they can. Only the
// time of expiry protects the records from the purge. A trigger checks each deleted record.
func TestOnce_NeverDeletesRetainedRecordsUnderRaces(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(10))
	h.exec(`create table deleted (wrong bool);
		create function look() returns trigger language plpgsql as 'begin
			insert into deleted values (old.expires_at > clock_timestamp() or old.state = ''processing''); return old; end';
		create trigger look before delete on idem.records for each row execute function look()`)
	h.records(50, "processing", "processing", "1 year")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var executed, replayed atomic.Int64
	var working sync.WaitGroup
	for range 6 {
		working.Go(func() {
			for ctx.Err() == nil {
				key := fmt.Sprint("key ", rand.N(4))
				res, err := idem.Do(ctx, h.pool, "a scope", key, idem.Hash{1}, answer, idem.WithTTL(rand.N(8*time.Millisecond)+time.Millisecond))
				switch {
				case err != nil && !idem.Retryable(err) && ctx.Err() == nil:
					t.Errorf("a call: %v", err)
				case err == nil && res.Replayed:
					replayed.Add(1)
				case err == nil:
					executed.Add(1)
				}
			}
		})
	}
	for range 2 {
		working.Go(func() {
			o := swift()
			o.Grace = time.Nanosecond
			for ctx.Err() == nil {
				if _, err := Once(ctx, h.pool, o); err != nil && ctx.Err() == nil {
					t.Errorf("a purge: %v", err)
				}
			}
		})
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		deleted := h.count("select count(*) from deleted")
		if deleted > 100 && replayed.Load() > 100 && executed.Load() > 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d deleted, %d replayed, %d executed", deleted, replayed.Load(), executed.Load())
		}
	}
	cancel()
	working.Wait()
	if n := h.count("select count(*) from deleted where wrong"); n != 0 {
		t.Errorf("%d records were deleted that were retained, or in state processing", n)
	}
	if n := h.left()["processing"]; n != 50 {
		t.Errorf("%d of 50 records in state processing are left", n)
	}
}

func TestOnce_ConcurrentPurgesDeleteEachRecordOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(8))
	h.records(6000, "live", "completed", "-1 hour")
	h.records(6000, "expired", "completed", "2 hours")
	var deleted, finished atomic.Int64
	var working sync.WaitGroup
	for range 6 {
		working.Go(func() {
			for {
				o := swift()
				o.Pages = 8
				rep, err := Once(t.Context(), h.pool, o)
				deleted.Add(rep.Deleted)
				if err != nil {
					t.Error(err)
					return
				}
				if rep.Tables[0].Ended == Finished {
					finished.Add(1)
					return
				}
			}
		})
	}
	working.Wait()
	if deleted.Load() != 6000 || finished.Load() != 6 {
		t.Errorf("%d deleted by %d sweeps", deleted.Load(), finished.Load())
	}
	h.wantLeft(map[string]int64{"live": 6000})
}

// At this level the server rejects one of two runs that start at the same moment.
func TestOnce_ConcurrentPurgesUnderSerializable(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(12))
	h.exec("alter database " + pgx.Identifier{h.pool.Config().ConnConfig.Database}.Sanitize() + " set default_transaction_isolation = serializable")
	h.pool.Reset()
	h.records(500, "expired", "completed", "2 hours")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 20 {
				if rep, err := Once(t.Context(), h.pool, swift()); err != nil {
					t.Errorf("%v, %v", rep, err)
				}
			}
		})
	}
	all.Wait()
	h.wantLeft(map[string]int64{})
}

// Normally one run sweeps at a time. This test deletes without that protection.
func TestPortion_OverlappingPortionsDeleteOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(8))
	h.records(4000, "live", "completed", "-1 hour")
	h.records(4000, "expired", "completed", "2 hours")
	whole, engine := h.portion(t)
	var deleted atomic.Int64
	var working sync.WaitGroup
	for range 6 {
		working.Go(func() {
			for _, n := range rand.Perm(40) {
				p := *whole
				p.from = int64(n) * whole.to / 40
				p.to = min(p.from+whole.to/15+1, whole.to)
				if _, err := p.delete(t.Context(), engine, db.Sweeper{Name: "records", ID: newID()}, db.Position{}); err != nil {
					t.Error(err)
				}
				deleted.Add(p.counts.Deleted)
			}
		})
	}
	working.Wait()
	if deleted.Load() != 4000 {
		t.Errorf("%d deleted", deleted.Load())
	}
	h.wantLeft(map[string]int64{"live": 4000})
}

func TestSweep_StopsAfterAnotherRunTookOver(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 4000)
	o := swift()
	o.Pages = 8
	portions := 0
	o.Progress = func(Progress) {
		if portions++; portions == 2 {
			h.exec("update idem.sweeps set sweeper = gen_random_uuid()")
		}
	}
	rep := h.once(o)
	if rep.Tables[0].Ended != Elsewhere || portions > 3 {
		t.Errorf("after %d portions: %+v", portions, rep)
	}
	if got := h.left()["expired"]; rep.Deleted+got != 4000 {
		t.Errorf("%d deleted, %d left", rep.Deleted, got)
	}
	if n := h.count("select count(*) from idem.sweeps where sweeper is not null"); n != 1 {
		t.Error("the other run has lost its sweep")
	}
}

func TestSweep_IsTakenOverWithoutHeartbeat(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 1000)
	for _, test := range []struct {
		seen  string
		ended Reason
	}{
		{"'1 second'", Elsewhere}, {"'5 minutes'", Finished}, {"'-5 minutes'", Finished}, // the clock was set back
	} {
		h.exec(`delete from idem.sweeps; insert into idem.sweeps (name, part, block, pages, sweeper, started_at, seen_at)
			values ('records', 'idem.records', 3, 3, gen_random_uuid(), now(), now() - ` + test.seen + `::interval)`)
		rep := h.once(swift())
		if s := rep.Tables[0]; s.Ended != test.ended || s.Resumed != (test.ended == Finished) {
			t.Errorf("seen %s ago: %+v", test.seen, s)
		}
	}
	if pages := h.count("select last_pages from idem.sweeps where name = 'records'"); pages != h.pages() {
		t.Errorf("%d pages were walked by both, of %d", pages, h.pages())
	}
}

func TestPortion_PlanIsATidRangeScan(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.records(20_000, "live", "completed", "-1 hour")
	h.records(20, "expired", "completed", "2 hours")
	h.exec("create index on idem.records (expires_at)")
	h.exec("create index on idem.records (state)")
	h.exec("analyze idem.records")
	p, _ := h.portion(t)
	tx := h.begin()
	if _, err := tx.Exec(t.Context(), "set local enable_tidscan = off"); err != nil {
		t.Fatal(err)
	}
	settings, err := tx.Query(t.Context(), db.LimitPortionSQL, "1000", "1000", "1000")
	if err != nil {
		t.Fatal(err)
	}
	settings.Close()
	rows, _ := tx.Query(t.Context(), "EXPLAIN "+p.statement.SQL, pgx.QueryExecModeExec, string(interval(time.Hour)), string(tid(0)), string(tid(5)))
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(plan, "\n")
	if strings.Contains(text, "Seq Scan") || strings.Contains(text, "Index") || strings.Count(text, "Tid Range Scan") != 2 || strings.Count(text, "Tid Scan") != 1 {
		t.Error(text)
	}
}
