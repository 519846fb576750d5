package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/purge"
)

// tableChecks look at the contents of the tables, and at purge and vacuum.
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

func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// autovacuum looks for autovacuum being off, on the server or for a table. Purge turns every
// expired record into a dead row, so a table without vacuum grows with every call.
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

// tableStatistics has the statistics of a relation.
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

// bloatRatio is the ratio of actual size to needed size above which a relation counts as bloated.
const bloatRatio = 2.5

// minIndexSize is the size in bytes below which an index is not checked for bloat. An empty index
// has a smaller size.
const minIndexSize = 3 * 8192

// bloat compares the size of each heap with the size that its rows need. The estimate is coarse, so
// only a ratio above bloatRatio is reported.
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

// purgeLag looks for tables in which purge does not delete expired rows in time. Purge sweeps each
// table separately, so a sweep may fail for a single table.
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
	var of *expected
	worst := time.Duration(0)
	for _, r := range e.leaves(table) {
		of = r.expectation()
		var known bool
		var oldest *float64
		e.one(`SELECT t.attname IS NOT NULL, extract(epoch FROM clock_timestamp())::float8 - extract(epoch FROM least((t.histogram_bounds::text::text[])[1]::timestamptz,
				(SELECT min(v::timestamptz) FROM unnest(t.most_common_vals::text::text[]) v)))::float8
			FROM (SELECT 1) AS one LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				JOIN pg_stats t ON t.schemaname = n.nspname AND t.tablename = c.relname AND NOT t.inherited) ON c.oid = $1 AND t.attname = $2`,
			[]any{r.OID, of.purged}, &known, &oldest)
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
		e.warn(fmt.Sprintf("idem.%s was never purged, and has rows that %s %s ago: the table only grows", table, of.purgedWhen, page.Age(worst)), remedy)
		return
	}
	for i := range unknown {
		e.withoutStatistics(&unknown[i])
	}
}

// mayWalk reports whether a check may scan the whole table idem.records: the table is small, or
// Options.Scan is set.
func (e *exam) mayWalk() bool {
	if e.opts.Scan {
		return true
	}
	size, err := record.Size(e.ctx, e.tx)
	return !e.failed(err) && size <= e.opts.Limits.ScanUpTo
}

// leftBehind counts committed records in the state processing, which stay if the function of a call
// ends its own transaction. No index leads to them, so the check scans the table.
func leftBehind(e *exam) {
	if !e.mayWalk() {
		e.unknown("not checked: finding records that were left behind needs a scan of the table", "use --scan, or run idem stuck --scan")
		return
	}
	count := 0
	err := record.LeftBehind(e.ctx, e.pool, e.opts.Limits.Statement, func(record.Record) { count++ }, func(int64, int64) {})
	if count > 0 {
		e.warn(fmt.Sprintf("%d records are left in state processing: an fn ended its own transaction, and calls with their keys get ErrTxEnded", count),
			"list them with idem stuck; then remove BEGIN, COMMIT and ROLLBACK from fn")
	}
	e.failed(err) // after the finding, because an error would suppress it
}

// operations looks for operations that are due without a process working on them, and for parked
// operations.
func operations(e *exam) {
	unattended, err := record.UnattendedOperations(e.ctx, e.tx, e.opts.Limits.OldTransaction)
	if !e.failed(err) && len(unattended) > 0 {
		e.warn(fmt.Sprintf("%s operations are due and no process executes them, the first for %s", page.AtLeast(int64(len(unattended)), maxCounted),
			page.Age(unattended[0].Now.Sub(unattended[0].WakeAt))),
			"start a process that runs a Worker with these definitions; list them with idem stuck")
	}
	parked, err := record.ParkedOperations(e.ctx, e.tx)
	if !e.failed(err) && len(parked) > 0 {
		e.warn(fmt.Sprintf("%s operations are parked (%s): they wait for a person, and their callers get operation.ErrParked",
			page.AtLeast(int64(len(parked)), maxCounted), reasonsOf(parked)),
			"see the reasons with idem stuck")
	}
}

// worker warns if operations are due and no Worker runs. A Worker behind a pooler has no session of
// its own, so only its lease shows that it runs.
func worker(e *exam) {
	due, err := record.UnattendedOperations(e.ctx, e.tx, 0)
	if e.failed(err) || len(due) == 0 {
		return
	}
	running, err := record.ReadWorkers(e.ctx, e.tx)
	if !e.failed(err) && running.Guards+running.Leased == 0 {
		e.warn(page.AtLeast(int64(len(due)), maxCounted)+" operations are due, and no Worker runs: no process resumes them",
			"start a process that runs operation.Worker; if a job queue calls Resume instead, check that it runs")
	}
}

// reasonsOf formats the number of parked operations for each reason code.
func reasonsOf(parked []record.Operation) string {
	counts := map[string]int{}
	for i := range parked {
		counts[parked[i].Reason]++
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s: %d", reason, counts[reason]))
	}
	return strings.Join(parts, ", ")
}

// sealed is the share of records that were sealed with one seal key. An empty key stands for
// records that are not sealed.
type sealed struct {
	key   string
	share float64
}

// sealKeys looks for records that were sealed with a key other than those of Options.SealKeys. A
// process without that key cannot replay them. In a small table the check counts the records. In a
// large table it uses the statistics of ANALYZE, unless Options.Scan is set.
func sealKeys(e *exam) {
	found := e.sealed()
	if len(found) == 0 || len(found) == 1 && found[0].key == "" {
		return
	}
	var keys []string
	plain := 0.0
	for _, s := range found {
		switch {
		case s.key == "":
			plain = s.share
		case len(e.opts.SealKeys) > 0 && !slices.Contains(e.opts.SealKeys, s.key):
			e.warn(fmt.Sprintf("about %s of the records are sealed with the key %q, which is not among those given: replaying them fails with ErrUnreadable",
				percent(s.share), s.key),
				"give every process that key until the longest TTL has passed and purge has run")
		default:
			keys = append(keys, fmt.Sprintf("%q (%s)", s.key, percent(s.share)))
		}
	}
	if len(keys) > 0 && len(e.opts.SealKeys) == 0 {
		e.note("records are sealed with "+strings.Join(keys, ", ")+"; this program does not know whether the processes have these keys",
			"give --seal-keys to compare")
	}
	if plain > 0 {
		e.note(fmt.Sprintf("about %s of the records are plain, and others are sealed", percent(plain)),
			"before you refuse plain rows, let the longest TTL pass and purge run")
	}
}

// sealed returns the share of records of each seal key, in order of the key.
func (e *exam) sealed() (found []sealed) {
	weights := map[string]float64{}
	if e.mayWalk() {
		e.failed(record.CountSealed(e.ctx, e.pool, e.opts.Limits.Statement, weights))
	} else {
		e.estimateSealed(weights)
	}
	all := 0.0
	for _, weight := range weights {
		all += weight
	}
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		found = append(found, sealed{key, weights[key] / all})
	}
	return found
}

// estimateSealed adds the estimated number of records of each key to weights. The estimate is the
// frequency of the key in pg_stats times the number of rows, summed over the partitions. A large
// partition without statistics gets a finding.
func (e *exam) estimateSealed(weights map[string]float64) {
	for _, r := range e.leaves("records") {
		var key string
		var weight float64
		known := false
		e.each(`
			WITH seen AS (
				SELECT t.*, greatest(c.reltuples, 1) AS rows FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				JOIN pg_stats t ON t.schemaname = n.nspname AND t.tablename = c.relname AND t.attname = 'sealed_by' AND NOT t.inherited
				WHERE c.oid = $1)
			SELECT v, f * rows::float8 FROM seen s, unnest(s.most_common_vals::text::text[], s.most_common_freqs) AS m (v, f)
			UNION ALL
			SELECT '', s.null_frac * s.rows::float8 FROM seen s`, []any{r.OID}, []any{&key, &weight}, func() {
			known = true
			if weight > 0 {
				weights[key] += weight
			}
		})
		if bytes := e.bytes(r); !known && bytes >= e.opts.Limits.BloatedSize {
			e.withoutStatistics(&r)
		}
	}
}

// percent formats a share between 0 and 1 as a percentage.
func percent(share float64) string {
	if share < 0.01 {
		return "less than 1 %"
	}
	return page.Count(int64(share*100+0.5)) + " %"
}
