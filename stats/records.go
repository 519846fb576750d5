package stats

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/statsdb"
)

// Records describes the size and the content of the table idem.records.
type Records struct {
	Count         Figure[int64] // live and expired records
	Expired       Figure[int64] // records that the purge may delete
	OldestExpired Figure[time.Duration]
	DeadRows      Figure[int64] // not vacuumed yet

	HeapBytes  int64
	IndexBytes int64
	OtherBytes int64 // TOAST (large response bodies), the free space map and the visibility map

	AnalyzedAt time.Time // zero if a partition was not analyzed since the statistics were reset
	VacuumedAt time.Time // zero if a partition was not vacuumed since the statistics were reset
}

// purgeGrace is how long the purge keeps an expired record by default.
const purgeGrace = time.Hour

// newRecords adds up the parts of the table: its partitions, or the table itself.
func newRecords(parts []statsdb.PartsRow, sweep Sweep, now time.Time) Records {
	var r Records
	var count, expired float64
	var oldest time.Duration
	var dead int64
	quality, reason := Exact, "" // stays Exact if every part is empty
	for _, part := range parts {
		r.HeapBytes += part.HeapBytes
		r.IndexBytes += part.IndexBytes
		r.OtherBytes += part.TotalBytes - part.HeapBytes - part.IndexBytes
		dead += part.DeadRows
		rows := rowsOf(part)
		count += rows
		if part.HeapBytes == 0 {
			continue
		}
		d, why := newDistribution(part)
		if why != "" {
			quality, reason = Unknown, why
			continue
		}
		if quality == Exact {
			quality = Estimate
		}
		share, age := d.expired(now, purgedBefore(sweep, timeOf(part.AnalyzedAt)))
		expired += share * rows
		oldest = max(oldest, age)
	}
	r.AnalyzedAt = earliest(parts, func(part statsdb.PartsRow) int64 { return part.AnalyzedAt })
	r.VacuumedAt = earliest(parts, func(part statsdb.PartsRow) int64 { return part.VacuumedAt })
	r.DeadRows = estimate(dead, "counted since the last vacuum")
	r.Count = estimate(int64(count), "counted since the last vacuum or analyze")
	switch quality {
	case Exact:
		r.Count, r.DeadRows = exact(int64(0)), exact(int64(0))
		r.Expired, r.OldestExpired = exact(int64(0)), exact(time.Duration(0))
	case Estimate:
		note := "from the sample of the last analyze"
		if !r.AnalyzedAt.IsZero() {
			note += fmt.Sprintf(", %s ago", now.Sub(r.AnalyzedAt).Round(time.Second))
		}
		r.Expired, r.OldestExpired = estimate(int64(expired), note), estimate(oldest, note)
	case Unknown:
		r.Expired, r.OldestExpired = unknown[int64](reason), unknown[time.Duration](reason)
	}
	return r
}

// rowsOf estimates the number of rows of a part. The row count of the statistics system is the best
// estimate if a vacuum or an analyze has set it. After a crash and on a standby this count starts
// at zero. In that case rowsOf multiplies the current size by the row density at the last analyze.
func rowsOf(part statsdb.PartsRow) float64 {
	counted := part.AnalyzedAt != 0 || part.VacuumedAt != 0
	if !counted && part.RowsAnalyzed > 0 && part.PagesAnalyzed > 0 {
		return part.RowsAnalyzed / float64(part.PagesAnalyzed) * float64(part.HeapBytes/part.BlockBytes)
	}
	return float64(part.LiveRows)
}

// earliest returns the earliest time among the parts, or the zero time if a part has no time.
func earliest(parts []statsdb.PartsRow, of func(statsdb.PartsRow) int64) time.Time {
	least := of(parts[0])
	for _, part := range parts {
		least = min(least, of(part)) // 0 stands for no time
	}
	return timeOf(least)
}

// purgedBefore returns a time. The sample of ANALYZE may contain records that expired before this
// time, but the table no longer does: a complete sweep, with the default Grace, has deleted them
// since. purgedBefore returns the zero time if there was no such sweep.
func purgedBefore(s Sweep, analyzed time.Time) time.Time {
	if s.LastFinishedAt.IsZero() || !s.LastFinishedAt.After(analyzed) {
		return time.Time{}
	}
	return s.LastStartedAt.Add(-purgeGrace)
}

// distribution is the distribution of expires_at in the sample that the last ANALYZE took.
type distribution struct {
	common      []time.Time // the most common values
	frequencies []float64   // the share of rows with each common value
	bounds      []time.Time // the bounds of a histogram of the other rows, with buckets of equal size
}

// newDistribution returns the distribution in the planner statistics of a part. If it cannot,
// reason says why.
func newDistribution(part statsdb.PartsRow) (d distribution, reason string) {
	switch {
	case !part.Readable:
		return d, "this role may not read idem.records, nor its planner statistics"
	case part.Bounds == "" && part.Common == "":
		return d, "the table was never analyzed: autovacuum analyzes it, or run ANALYZE idem.records"
	}
	var err error
	if d.bounds, err = parseTimes(part.Bounds); err == nil {
		d.common, err = parseTimes(part.Common)
	}
	if err == nil && part.Frequencies != "" {
		err = json.Unmarshal([]byte(part.Frequencies), &d.frequencies)
	}
	if err == nil && len(d.frequencies) != len(d.common) {
		err = fmt.Errorf("%d frequencies of %d values", len(d.frequencies), len(d.common))
	}
	if err != nil {
		return distribution{}, fmt.Sprintf("the statistics of the table cannot be parsed: %v", err)
	}
	return d, ""
}

// infinite maps the timestamps that Go cannot represent to times. Only SQL written by hand stores
// such timestamps.
var infinite = map[string]time.Time{
	"infinity":  time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	"-infinity": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
}

// parseTimes parses a JSON array of timestamps. In JSON, Postgres writes timestamps in one format,
// whatever the settings of the session.
func parseTimes(array string) ([]time.Time, error) {
	if array == "" {
		return nil, nil
	}
	var texts []string
	if err := json.Unmarshal([]byte(array), &texts); err != nil {
		return nil, err
	}
	times := make([]time.Time, len(texts))
	for i, text := range texts {
		if t, ok := infinite[text]; ok {
			times[i] = t
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, err
		}
		times[i] = t
	}
	return times, nil
}

// expired returns the share of rows that have expired, and how long ago the oldest of these rows
// expired. It ignores rows of the sample that expired before the time purged, because a sweep has
// deleted them since ANALYZE took the sample.
func (d *distribution) expired(now, purged time.Time) (share float64, oldest time.Duration) {
	histogram := 1.0 // the share of rows that the histogram covers
	var past, gone float64
	for i, at := range d.common {
		histogram -= d.frequencies[i]
		switch {
		case at.Before(purged):
			gone += d.frequencies[i]
		case at.Before(now):
			past += d.frequencies[i]
			oldest = max(oldest, now.Sub(at))
		}
	}
	for i := 1; i < len(d.bounds); i++ {
		from, to := d.bounds[i-1], d.bounds[i]
		bucket := histogram / float64(len(d.bounds)-1)
		deleted := shareBefore(from, to, purged)
		gone += bucket * deleted
		if left := shareBefore(from, to, now) - deleted; left > 0 {
			past += bucket * left
			if purged.After(from) {
				from = purged
			}
			oldest = max(oldest, now.Sub(from))
		}
	}
	if gone >= 1 {
		return 0, 0
	}
	return min(past/(1-gone), 1), oldest
}

// shareBefore returns the share of the time between from and to that is before t.
func shareBefore(from, to, t time.Time) float64 {
	switch {
	case !t.After(from):
		return 0
	case !t.Before(to):
		return 1
	}
	return float64(t.Sub(from)) / float64(to.Sub(from))
}
