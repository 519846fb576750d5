package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// mayWalk reports whether a check may scan the whole table idem.records: the table is small, or
// Options.Scan is set.
func (e *exam) mayWalk() bool {
	if e.opts.Scan {
		return true
	}
	size, err := record.Size(e.ctx, e.tx)
	return !e.failed(err) && size <= e.opts.Limits.ScanUpTo
}

// leftBehind counts records that were left in state processing. No index leads to them, so the
// check scans the table.
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
	e.failed(err) // after the finding, which holds for a part of the table too
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

// worker warns if operations are due and no Worker runs. A Worker behind a pooler is visible only
// by its lease.
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

// sealed is the share of records that one key sealed. An empty key stands for plain records.
type sealed struct {
	key   string
	share float64
}

// sealKeys looks for records that were sealed with a key other than those of Options.SealKeys. A
// process without that key cannot replay them. A small table is counted. For a large table the
// statistics of ANALYZE have to do.
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

// percent formats a share.
func percent(share float64) string {
	if share < 0.01 {
		return "less than 1 %"
	}
	return page.Count(int64(share*100+0.5)) + " %"
}
