package doctor

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

var tableChecks = []check{
	{name: "purge-lag", run: purgeLag},
	{name: "autovacuum", run: autovacuum},
	{name: "dead-rows", run: deadRows},
	{name: "bloat", run: bloat},
	{name: "index-bloat", run: indexBloat},
	{name: "left-behind", run: leftBehind},
	{name: "operations", run: operations},
	{name: "seal-keys", run: sealKeys},
}

// purgeLag looks at what purge has written down of its sweeps.
func purgeLag(e *exam) error {
	var finished, progressed *float64 // seconds ago
	var waiting string
	err := e.one(`
		SELECT extract(epoch FROM clock_timestamp() - s.last_finished_at)::float8,
			extract(epoch FROM clock_timestamp() - coalesce(s.progressed_at, s.started_at))::float8, coalesce(s.waiting_for, '')
		FROM (SELECT 1) AS one LEFT JOIN idem.sweeps s ON s.name = 'records'`, nil, &finished, &progressed, &waiting)
	if err != nil {
		return err
	}
	const remedy = "run idem purge from a scheduler, or purge.Run in the program"
	limit := e.opts.Limits.PurgeLag
	switch {
	case finished != nil && span(*finished) <= limit:
	case waiting != "" && progressed != nil:
		e.warn(fmt.Sprintf("the sweep under way waits for: %s, and has got no further for %s", waiting, page.Age(span(*progressed))),
			"see the checks xmin-*, dead-rows and locked for what is in its way")
	case finished != nil:
		e.warn(fmt.Sprintf("no sweep has finished for %s: what has expired since is still there", page.Age(span(*finished))), remedy)
	default:
		return neverPurged(e, remedy)
	}
	return nil
}

// neverPurged goes by the statistics: what is the earliest expiry that they know of?
func neverPurged(e *exam, remedy string) error {
	var oldest *float64
	err := e.one(`SELECT max(extract(epoch FROM clock_timestamp() - (histogram_bounds::text::text[])[1]::timestamptz))::float8
		FROM pg_stats WHERE schemaname = 'idem' AND tablename = 'records' AND attname = 'expires_at'`, nil, &oldest)
	if err == nil && oldest != nil && span(*oldest) > e.opts.Limits.PurgeLag {
		e.warn(fmt.Sprintf("nothing was ever purged, and there are records that expired %s ago: the table only grows", page.Age(span(*oldest))), remedy)
	}
	return err
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func autovacuum(e *exam) error {
	var on, counts, forTable bool
	err := e.one(`SELECT current_setting('autovacuum')::bool, current_setting('track_counts')::bool,
		coalesce((SELECT o.option_value::bool FROM pg_class c, pg_options_to_table(c.reloptions) o
			WHERE c.oid = 'idem.records'::regclass AND o.option_name = 'autovacuum_enabled'), true)`, nil, &on, &counts, &forTable)
	if err != nil {
		return err
	}
	if !on || !counts {
		e.problem("autovacuum does not run on this server (autovacuum or track_counts is off): the table only grows", "set autovacuum = on and track_counts = on, and reload")
	}
	if !forTable {
		e.problem("autovacuum is off for idem.records: the table only grows", "ALTER TABLE idem.records RESET (autovacuum_enabled)")
	}
	return nil
}

func deadRows(e *exam) error {
	var live, dead int64
	var vacuumed string
	err := e.one(`SELECT coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0), coalesce(greatest(last_vacuum, last_autovacuum)::timestamp(0)::text || ' UTC', 'never')
		FROM pg_stat_all_tables WHERE relid = 'idem.records'::regclass`, nil, &live, &dead, &vacuumed)
	if err != nil {
		return err
	}
	if dead >= e.opts.Limits.DeadRows && float64(dead) > e.opts.Limits.DeadShare*float64(live) {
		e.warn(fmt.Sprintf("about %s dead rows beside %s live ones, last vacuumed: %s: vacuum does not keep up, or is held back", page.Count(dead), page.Count(live), vacuumed),
			"see the checks xmin-*; if nothing holds it back: VACUUM idem.records, and lower autovacuum_vacuum_scale_factor for the table")
	}
	return nil
}

// bloated is from how many times its needed size on something is bloated.
const bloated = 2.5

// bloat compares the size of the heap with what its rows need, by the statistics.
func bloat(e *exam) error {
	var size, needed int64
	var analyzed bool
	err := e.one(`
		SELECT pg_relation_size(c.oid),
			(greatest(c.reltuples, s.n_live_tup) * (28 + coalesce(w.width, 0)) * 1.05)::int8, w.width IS NOT NULL
		FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid,
		LATERAL (SELECT sum((1 - null_frac) * avg_width) AS width FROM pg_stats WHERE schemaname = 'idem' AND tablename = 'records') w
		WHERE c.oid = 'idem.records'::regclass`, nil, &size, &needed, &analyzed)
	if err != nil || size < e.opts.Limits.BloatedSize {
		return err
	}
	if !analyzed {
		e.unknown("not checked: the table was never analyzed, or this role may not read its statistics", "ANALYZE idem.records")
		return nil
	}
	if float64(size) > bloated*float64(needed) {
		e.warn(fmt.Sprintf("the table has %s and its rows need about %s: what was purged left room that nothing fills", page.Bytes(size), page.Bytes(needed)),
			"if it stays so for days: pg_repack, or VACUUM FULL idem.records in a window in which no call is made; purge more often")
	}
	return nil
}

func indexBloat(e *exam) error {
	var size, needed int64
	var analyzed bool
	err := e.one(`
		SELECT coalesce(pg_relation_size(i.indexrelid), 0), (greatest(c.reltuples, s.n_live_tup) * (20 + coalesce(w.width, 0)) / 0.7)::int8, w.width IS NOT NULL
		FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary,
		LATERAL (SELECT sum(avg_width) AS width FROM pg_stats WHERE schemaname = 'idem' AND tablename = 'records' AND attname IN ('scope', 'key')) w
		WHERE c.oid = 'idem.records'::regclass`, nil, &size, &needed, &analyzed)
	if err != nil || size < e.opts.Limits.BloatedSize || !analyzed {
		return err
	}
	if float64(size) > bloated*float64(needed) {
		e.warn(fmt.Sprintf("the index of the primary key has %s and its rows need about %s", page.Bytes(size), page.Bytes(needed)), "REINDEX INDEX CONCURRENTLY idem.records_pkey")
	}
	return nil
}
