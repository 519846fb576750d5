package purge

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reason is why a sweep has ended or has waited.
type Reason string

// The reasons.
const (
	Finished    Reason = "finished"    // the whole table was walked
	Elsewhere   Reason = "elsewhere"   // another run sweeps the table, or has done so recently
	Replication Reason = "replication" // a standby was behind by more than Options.MaxLag
	Vacuum      Reason = "vacuum"      // there were more than Options.MaxDead dead rows
	Pool        Reason = "pool"        // every connection of the pool was in use
	Lock        Reason = "lock"        // another session had locked the table
	Server      Reason = "server"      // the server was unavailable or read-only
	TimeIsUp    Reason = "time is up"  // Options.Max has passed
	Stopped     Reason = "stopped"     // the context has ended
	Failed      Reason = "failed"      // there was an error
)

// Counts are the numbers of rows and pages of a sweep.
type Counts struct {
	Deleted int64 // rows deleted; with DryRun, rows that would be deleted
	Kept    int64 // rows that are not due yet
	Skipped int64 // rows that are due, but were locked or were just changed; the next sweep finds them again
	Pages   int64 // pages walked
}

func (c *Counts) add(other Counts) {
	c.Deleted += other.Deleted
	c.Kept += other.Kept
	c.Skipped += other.Skipped
	c.Pages += other.Pages
}

// Report is the result of one run over all tables.
type Report struct {
	Counts
	Tables   []Sweep
	DryRun   bool
	Duration time.Duration
}

// Sweep is the result of one run on one table. If the run has resumed a sweep, the counts do not
// include the part that earlier runs have done.
type Sweep struct {
	Counts
	Table    string
	Ended    Reason
	Resumed  bool // the run has resumed the sweep of an earlier run
	Duration time.Duration
	Working  time.Duration // how long the server has worked, by its own clock
	Waited   map[Reason]time.Duration
	Standby  string // the slowest standby, if the sweep has waited for it
	Hidden   int64  // the number of standbys whose lag the role cannot see
}

// Progress is the progress of a sweep.
type Progress struct {
	Counts
	Table         string
	WalkedPages   int64  // pages walked in the whole sweep, including earlier runs
	TotalPages    int64  // pages of the table at the start of the sweep
	Waiting       Reason // empty while the sweep works
	PagesAPortion int
	Duration      time.Duration
}

// String returns the report as one line of text.
func (r Report) String() string {
	var b strings.Builder
	deleted := "deleted"
	if r.DryRun {
		deleted = "would delete"
	}
	for i, s := range r.Tables {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(s.Table + ": ")
		if s.Pages > 0 {
			fmt.Fprintf(&b, "%s %d, kept %d, skipped %d, walked %d pages in %v", deleted, s.Deleted, s.Kept, s.Skipped, s.Pages,
				s.Duration.Round(time.Millisecond))
			for _, reason := range slices.Sorted(maps.Keys(s.Waited)) {
				fmt.Fprintf(&b, ", waited %v for %s", s.Waited[reason].Round(time.Millisecond), reason)
			}
			b.WriteString(": ")
		}
		b.WriteString(string(s.Ended))
	}
	return b.String()
}

// logFailure is the default of Options.Done.
func logFailure(_ Report, err error) {
	if err != nil {
		slog.Warn("idem: purge failed and will be retried", "error", err)
	}
}
