package purge

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// Wherever the connection is cut, committed deletions stay, and idem.sweeps counts exactly those.
func TestSweep_ResumesAfterACutConnection(t *testing.T) {
	t.Parallel()
	points := map[string]pgproxy.Point{
		"before the deletion":            pgproxy.Before(pgproxy.Contains("SKIP LOCKED")),
		"after the deletion":             pgproxy.AfterAnswer(pgproxy.Contains("SKIP LOCKED")),
		"before COMMIT":                  pgproxy.Before(pgproxy.IsCommit),
		"after COMMIT, without answer":   pgproxy.AfterAnswer(pgproxy.IsCommit),
		"before the next part is sought": pgproxy.Before(pgproxy.Contains("pg_partition_tree")),
		"at the end, without its answer": pgproxy.AfterAnswer(pgproxy.Contains("last_finished_at = pg_catalog")),
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.records(3000, "live", "completed", "-1 hour")
			h.records(3000, "expired", "completed", "2 hours")
			pages := h.pages()
			proxy := pgtest.Proxy(t, h.pool.Config().ConnString())
			pool := pgtest.Open(t, proxy.DSN())
			var trap *pgproxy.Trap
			o := swift()
			o.Pages = 40
			o.Progress = func(p Progress) {
				if trap == nil && p.Pages > 0 {
					trap = proxy.Arm(point, pgproxy.Reset)
				}
			}
			rep := h.onceOn(pool, o)
			if rep.Tables[0].Ended != Finished || trap == nil || trap.Count() != 1 {
				t.Errorf("%v", rep)
			}
			if rep.Pages > pages {
				t.Errorf("%d pages were walked, of %d", rep.Pages, pages)
			}
			h.wantLeft(map[string]int64{"live": 3000})
			if n := h.count("select deleted_total from idem.sweeps where name = 'records'"); n != 3000 {
				t.Errorf("idem.sweeps has counted %d", n)
			}
		})
	}
}

func TestSweep_ResumesAfterATerminatedSession(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	pool := h.open()
	o := swift()
	o.Pages = 8
	killed := 0
	o.Progress = func(p Progress) {
		if killed < 3 && p.Waiting == "" {
			killed++
			h.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
		}
	}
	rep := h.onceOn(pool, o)
	h.wantCounts(rep, Finished, Counts{Deleted: 3000})
	if killed != 3 {
		t.Errorf("killed %d times", killed)
	}
}

func TestOnce_UnusableServerIsAnError(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	readOnly := h.open(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	if _, err := Once(t.Context(), readOnly, swift()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("%v", err)
	}

	proxy := pgtest.Proxy(t, h.pool.Config().ConnString())
	pool := pgtest.Open(t, proxy.DSN())
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := Once(t.Context(), pool, swift())
	if err == nil || rep.Tables[0].Ended != Failed {
		t.Errorf("%v, %+v", err, rep)
	}
}

func TestOnce_NeedsExactlyTheDocumentedPrivileges(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const allOfRecords, allOfSweeps = "select (ctid, state, expires_at), update (expires_at), delete", "select, insert, update"
	for _, test := range []struct {
		records, sweeps string
		suffice         bool
	}{
		{allOfRecords, allOfSweeps, true},
		{"select (ctid, state, expires_at), delete", allOfSweeps, false},
		{"select (ctid, state, expires_at), update (expires_at)", allOfSweeps, false},
		{"select (ctid, expires_at), update (expires_at), delete", allOfSweeps, false},
		{"select (ctid, state), update (expires_at), delete", allOfSweeps, false},
		{"update (expires_at), delete", allOfSweeps, false},
		{allOfRecords, "insert, update", false},
		{allOfRecords, "select, update", false},
		{allOfRecords, "select, insert", false},
	} {
		t.Run(test.records+"/"+test.sweeps, func(t *testing.T) {
			h.exec("truncate idem.records")
			h.records(100, "expired", "completed", "2 hours")
			rep, err := Once(t.Context(), h.asRole(t, test.records, test.sweeps), swift())
			var pgErr *pgconn.PgError
			switch {
			case test.suffice && (err != nil || rep.Deleted != 100):
				t.Errorf("%v, %v", rep, err)
			case !test.suffice && (!errors.As(err, &pgErr) || pgErr.Code != "42501" || !strings.Contains(err.Error(), "needs")):
				t.Errorf("%v, %v", rep, err)
			}
		})
	}
}

func TestOnce_IgnoresSessionSettings(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.records(500, "live", "completed", "-1 hour")
			h.records(500, "just expired", "completed", "59 minutes")
			h.records(500, "expired", "completed", "61 minutes")
			h.exec(`create schema evil;
				create function evil.clock_timestamp() returns timestamptz language sql as 'select ''infinity''::timestamptz';
				create function evil.statement_timestamp() returns timestamptz language sql as 'select ''infinity''::timestamptz';
				create function evil.less(timestamptz, timestamptz) returns bool language sql as 'select true';
				create operator evil.< (leftarg = timestamptz, rightarg = timestamptz, function = evil.less);
				create table evil.records (like idem.records); create table evil.pg_class ()`)
			pool := h.open(func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				for name, value := range map[string]string{
					"search_path": "evil,pg_catalog", "TimeZone": "Pacific/Chatham", "DateStyle": "German", "IntervalStyle": "sql_standard",
					"default_transaction_isolation": "serializable", "statement_timeout": "60000", "lock_timeout": "60000",
					"enable_tidscan": "off", "plan_cache_mode": "force_generic_plan", "synchronous_commit": "local",
				} {
					c.ConnConfig.RuntimeParams[name] = value
				}
			})
			rep := h.onceOn(pool, swift())
			h.wantCounts(rep, Finished, Counts{Deleted: 500, Kept: 1000})
			h.wantLeft(map[string]int64{"live": 500, "just expired": 500})
			var lock, work string
			err := pool.QueryRow(context.Background(), "select current_setting('lock_timeout'), current_setting('statement_timeout')").Scan(&lock, &work)
			if err != nil || lock != "1min" || work != "1min" {
				t.Errorf("the session is left with lock_timeout %s, statement_timeout %s, %v", lock, work, err)
			}
		})
	}
}

// The test server has a synchronous standby that does not exist.
func TestOnce_DoesNotWaitForASynchronousStandby(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 500)
	pool := h.open()
	complete, err := swift().complete(pool)
	if err != nil {
		t.Fatal(err)
	}
	s := newSweep(pool, complete, records, newID(), 0)
	if err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec("alter database " + pgx.Identifier{h.pool.Config().ConnConfig.Database}.Sanitize() + " set synchronous_commit = on")
	pool.Reset()
	p, engine := h.portion(t)
	engine.Pool = pool
	if _, err := p.delete(t.Context(), engine, s.sweeper, s.whole.Position); err != nil || p.counts.Deleted != 500 {
		t.Errorf("%+v, %v", p.counts, err)
	}
}
