package vitals

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// measure adds up the parts of the table: one, or its partitions.
func (v *Vitals) measure(parts []db.PartsRow) {
	var records, expired float64
	var oldest time.Duration
	rest, doubt := Exact, ""
	for _, part := range parts {
		v.HeapBytes += part.HeapBytes
		v.IndexBytes += part.IndexBytes
		v.OtherBytes += part.TotalBytes - part.HeapBytes - part.IndexBytes
		v.DeadRows.Value += part.DeadRows
		rows := rowsOf(part)
		records += rows
		if part.HeapBytes == 0 {
			continue
		}
		spread, why := spreadOf(part)
		if why != "" {
			rest, doubt = Unknown, why
			continue
		}
		share, since := spread.expired(v.At, v.sweptUpTo(moment(part.AnalyzedAt)))
		expired += share * rows
		oldest = max(oldest, since)
		if rest == Exact {
			rest = Estimate
		}
	}
	v.AnalyzedAt = earliest(parts, func(part db.PartsRow) int64 { return part.AnalyzedAt })
	v.VacuumedAt = earliest(parts, func(part db.PartsRow) int64 { return part.VacuumedAt })
	v.DeadRows = estimate(v.DeadRows.Value, "as counted since the last vacuum")
	v.Records = estimate(int64(records), "as counted since the last vacuum or analyze")
	switch rest {
	case Exact: // there are no pages
		v.Records, v.DeadRows = exact(int64(0)), exact(int64(0))
		v.Expired, v.OldestExpired = exact(int64(0)), exact(time.Duration(0))
	case Estimate:
		note := fmt.Sprintf("from the sample of the last analyze, %s ago", v.At.Sub(v.AnalyzedAt).Round(time.Second))
		if v.AnalyzedAt.IsZero() {
			note = "from the sample of the last analyze"
		}
		v.Expired, v.OldestExpired = estimate(int64(expired), note), estimate(oldest, note)
	case Unknown:
		v.Expired, v.OldestExpired = unknown[int64](doubt), unknown[time.Duration](doubt)
	}
}

// rowsOf estimates the records of a part. The running count of the statistics is the nearest, if it began at a vacuum or an
// analyze: it begins at zero after a crash, and on a standby. What remains is the density that they have found.
func rowsOf(part db.PartsRow) float64 {
	counted := part.AnalyzedAt != 0 || part.VacuumedAt != 0
	if !counted && part.RowsAnalyzed > 0 && part.PagesAnalyzed > 0 {
		return part.RowsAnalyzed / float64(part.PagesAnalyzed) * float64(part.HeapBytes/part.BlockBytes)
	}
	return float64(part.LiveRows)
}

// earliest returns the earliest of the moments, or none if one of them is missing.
func earliest(parts []db.PartsRow, of func(db.PartsRow) int64) time.Time {
	least := of(parts[0])
	for _, part := range parts {
		least = min(least, of(part)) // zero is none
	}
	return moment(least)
}

// sweptUpTo is the moment before which no expired record can have been left by a whole sweep that is younger than the sample,
// which still has them. Zero if there was none.
func (v *Vitals) sweptUpTo(analyzed time.Time) time.Time {
	s := v.sweepOfRecords()
	if s.LastEnded.IsZero() || !s.LastEnded.After(analyzed) {
		return time.Time{}
	}
	return s.LastBegan.Add(-grace)
}

// grace is how long purge leaves an expired record, unless it is told otherwise.
const grace = time.Hour
