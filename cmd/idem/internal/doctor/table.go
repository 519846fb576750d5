package doctor

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/purge"
)

var tableChecks = []check{
	{name: "purge-lag", run: purgeLag, reads: []string{"sweeps"}},
	{name: "autovacuum", run: autovacuum},
	{name: "dead-rows", run: deadRows},
	{name: "bloat", run: bloat},
	{name: "index-bloat", run: indexBloat},
	{name: "left-behind", run: leftBehind, reads: []string{"records"}},
	{name: "operations", run: operations, reads: []string{"operations", "leases"}},
	{name: "worker", run: worker, reads: []string{"operations", "leases", "relays"}},
	{name: "seal-keys", run: sealKeys, reads: []string{"records"}},
}

// asDuration converts seconds to a duration.
func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// autovacuum looks for autovacuum being off, on the server or for a table. Every expired record
// becomes a dead row, so a table without vacuum grows with every call.
func autovacuum(e *exam) {
	var on, counts bool
	e.one(`SELECT current_setting('autovacuum')::bool, current_setting('track_counts')::bool`, nil, &on, &counts)
	if !on || !counts {
		e.problem("autovacuum does not run on this server (autovacuum or track_counts is off): the table only grows",
			"set autovacuum = on and track_counts = on, and reload")
	}
	for _, r := range e.leaves() {
		if !r.Autovacuum {
			e.problem("autovacuum is off for "+r.Name+": the table only grows",
				"ALTER TABLE "+r.Name+" RESET (autovacuum_enabled), and RESET (toast.autovacuum_enabled)")
		}
	}
}

// tableStatistics holds the statistics of a relation.
type tableStatistics struct {
	OID        uint32
	Rows       int64 // an estimate of the live rows
	Dead       int64
	Vacuumed   string
	Bytes      int64 // size of the heap
	IndexBytes int64 // size of the index of the primary key
	Index      string
	Width      *float64 // average width of a row; nil if unknown
	KeyWidth   float64  // average width of the columns of the primary key
}

// statistics returns the statistics of relations.
//
// The row count is the larger of the estimates of ANALYZE and of the cumulative statistics. The
// width of a row is the sum of the average column widths. It is 0 for a table that is known to be
// empty, and NULL if the table was never analyzed.
func (e *exam) statistics(relations []relation) []tableStatistics {
	return structs[tableStatistics](e, `
		SELECT c.oid, greatest(c.reltuples, s.n_live_tup, 0)::int8, coalesce(s.n_dead_tup, 0),
			coalesce(greatest(s.last_vacuum, s.last_autovacuum)::timestamp(0)::text || ' UTC', 'never'),
			coalesce(pg_relation_size(c.oid), 0), coalesce(pg_relation_size(i.indexrelid), 0),
			coalesce((SELECT format('%I.%I', n.nspname, x.relname) FROM pg_class x WHERE x.oid = i.indexrelid), ''),
			CASE WHEN c.reltuples = 0 AND coalesce(s.n_live_tup, 0) = 0 THEN 0 ELSE w.width END::float8, coalesce(w.key, 0)::float8
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary,
		LATERAL (
			SELECT sum((1 - t.null_frac) * t.avg_width) AS width, sum(t.avg_width) FILTER (WHERE a.attnum = ANY (i.indkey)) AS key
			FROM pg_stats t JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = t.attname
			WHERE t.schemaname = n.nspname AND t.tablename = c.relname AND NOT t.inherited) w
		WHERE c.oid = ANY ($1) ORDER BY array_position($1, c.oid)`, oidsOf(relations))
}

// deadRows looks for relations on which vacuum does not keep up.
func deadRows(e *exam) {
	found := e.statistics(e.leaves())
	for _, v := range found {
		if v.Dead >= e.opts.Limits.DeadRows && float64(v.Dead) > e.opts.Limits.DeadShare*float64(v.Rows) {
			name := e.relation(v.OID).Name
			e.warn(fmt.Sprintf("%s has about %s dead rows and %s live ones, last vacuumed: %s: vacuum does not keep up, or is blocked",
				name, page.Count(v.Dead), page.Count(v.Rows), v.Vacuumed),
				"see the checks xmin-*; if nothing blocks it: VACUUM "+name+", and lower autovacuum_vacuum_scale_factor for the table")
		}
	}
}

// bloatRatio is the ratio of actual size to needed size from which a relation counts as bloated.
const bloatRatio = 2.5

// minIndexSize is larger than the index of an empty table.
const minIndexSize = 3 * 8192

// bloat compares the size of each heap with the size that its rows need. The estimate is coarse, so
// only a ratio that no rounding explains is reported.
func bloat(e *exam) {
	found := e.statistics(e.leaves())
	for _, v := range found {
		if v.Bytes < e.opts.Limits.BloatedSize {
			continue
		}
		r := e.relation(v.OID)
		if v.Width == nil {
			e.withoutStatistics(r)
			continue
		}
		// A row costs a 24-byte header and a 4-byte line pointer. The factor allows for page
		// headers and padding.
		needed := int64(float64(v.Rows) * (28 + *v.Width) * 1.05)
		if float64(v.Bytes) > bloatRatio*float64(needed) {
			e.warn(fmt.Sprintf("%s has %s and its rows need about %s: deleted rows left unused space", r.Name, page.Bytes(v.Bytes), page.Bytes(needed)),
				"if this lasts for days: pg_repack, or VACUUM FULL "+r.Name+" while no calls are made; purge more often")
		}
	}
}

// indexBloat compares the size of each primary key index with the size that its entries need.
func indexBloat(e *exam) {
	found := e.statistics(e.leaves())
	for _, v := range found {
		if v.IndexBytes < max(e.opts.Limits.BloatedSize, minIndexSize) {
			continue
		}
		r := e.relation(v.OID)
		if v.Width == nil {
			e.withoutStatistics(r)
			continue
		}
		// An entry costs about 20 bytes besides the key. B-tree pages are about 70 % full.
		needed := int64(float64(v.Rows) * (20 + v.KeyWidth) / 0.7)
		if float64(v.IndexBytes) > bloatRatio*float64(needed) {
			e.warn(fmt.Sprintf("the index of the primary key of %s has %s and its rows need about %s", r.Name, page.Bytes(v.IndexBytes), page.Bytes(needed)),
				"REINDEX INDEX CONCURRENTLY "+v.Index)
		}
	}
}

// withoutStatistics adds a finding of level Unknown: without statistics of r the needed size is
// unknown. Either the role cannot read r, or r was never analyzed.
func (e *exam) withoutStatistics(r *relation) {
	if !r.Readable {
		e.unknown("not checked: this role may not read "+r.Name+" and its statistics", e.granting([]string{r.Name}))
		return
	}
	e.unknown("not checked: "+r.Name+" was never analyzed", "ANALYZE "+r.Name)
}

// sweepState is what purge has recorded about its sweeps of a table.
type sweepState struct {
	Name       string
	Finished   *float64 // seconds since the last finished sweep; nil if none finished
	Progressed *float64
	Waiting    string
}

// purgeLag looks for tables that purge does not keep up with. Each table has a sweep of its own, so
// a sweep may fail for a single table.
func purgeLag(e *exam) {
	found := structs[sweepState](e, `
		SELECT w.name, extract(epoch FROM clock_timestamp() - s.last_finished_at)::float8,
			extract(epoch FROM clock_timestamp() - coalesce(s.progressed_at, s.started_at))::float8, coalesce(s.waiting_for, '')
		FROM unnest($1::text[]) WITH ORDINALITY AS w (name, n) LEFT JOIN idem.sweeps s ON s.name = w.name ORDER BY w.n`,
		tableNames(func(t *expected) bool { return t.purged != "" }))
	for _, s := range found {
		e.purgeLagOf(s)
	}
}

// purgeLagOf adds the finding for one table. An empty table other than records needs no sweep.
func (e *exam) purgeLagOf(s sweepState) {
	const remedy = "run idem purge from a scheduler, or purge.Run in the program; if one runs, its log or result says why it does not finish"
	limit := e.opts.Limits.PurgeLag
	bytes := e.bytes(e.leaves(s.Name)...)
	switch {
	case bytes == 0 && s.Name != "records", s.Finished != nil && asDuration(*s.Finished) <= limit:
	case s.Waiting != "" && s.Progressed != nil:
		e.warn(fmt.Sprintf("the sweep of idem.%s waits for: %s, without progress for %s", s.Name, s.Waiting, page.Age(asDuration(*s.Progressed))),
			"see the checks xmin-*, dead-rows and locked for the cause")
	case s.Finished != nil:
		e.warn(fmt.Sprintf("no sweep of idem.%s has finished for %s: rows that expired since then are still there",
			s.Name, page.Age(asDuration(*s.Finished))), remedy)
	case s.Progressed != nil && asDuration(*s.Progressed) > limit:
		e.warn(fmt.Sprintf("no sweep of idem.%s has finished yet, and the current one has made no progress for %s",
			s.Name, page.Age(asDuration(*s.Progressed))), remedy)
	default:
		e.neverPurged(s.Name, remedy)
	}
}

// neverPurged adds a finding if a table that was never swept has rows that purge could have deleted
// long ago. The age comes from the statistics of the column expected.purged: the lowest histogram
// bound or the lowest common value. A large relation without statistics gets a finding of level
// Unknown.
func (e *exam) neverPurged(table, remedy string) {
	var unknown []relation
	worst := time.Duration(0)
	for _, r := range e.leaves(table) {
		var known bool
		var oldest *float64
		e.one(`SELECT t.attname IS NOT NULL, extract(epoch FROM clock_timestamp())::float8 - extract(epoch FROM least((t.histogram_bounds::text::text[])[1]::timestamptz,
				(SELECT min(v::timestamptz) FROM unnest(t.most_common_vals::text::text[]) v)))::float8
			FROM (SELECT 1) AS one LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				JOIN pg_stats t ON t.schemaname = n.nspname AND t.tablename = c.relname AND NOT t.inherited) ON c.oid = $1 AND t.attname = $2`,
			[]any{r.OID, r.expectation().purged}, &known, &oldest)
		if oldest != nil {
			worst = max(worst, asDuration(*oldest))
		}
		if known {
			continue
		}
		bytes := e.bytes(r)
		if bytes >= e.opts.Limits.BloatedSize {
			unknown = append(unknown, r)
		}
	}
	limit := e.opts.Limits.PurgeLag
	switch table {
	case "operations":
		limit += purge.DefaultOperations
	case "audit":
		limit += purge.DefaultAudit
	}
	if worst > limit {
		e.warn(fmt.Sprintf("idem.%s was never purged, and has rows that %s %s ago: the table only grows", table, verbs[table], page.Age(worst)), remedy)
		return
	}
	for i := range unknown {
		e.withoutStatistics(&unknown[i])
	}
}

// verbs has the verb for what happened to a row of the table before purge may delete it.
var verbs = map[string]string{
	"records": "expired", "operations": "ended", "inbox": "expired", "published": "expired", "audit": "were written",
}
