package purge

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reason says why a sweep ended, or for what it has waited.
type Reason string

// The reasons.
const (
	Finished    Reason = "finished"    // the whole table was walked
	Elsewhere   Reason = "elsewhere"   // another run is at it, or has been lately
	Replication Reason = "replication" // a standby lagged behind by more than Options.MaxLag
	Vacuum      Reason = "vacuum"      // more than Options.MaxDead dead rows waited for vacuum
	Pool        Reason = "pool"        // every connection of the pool was in use
	Lock        Reason = "lock"        // another session had locked the table
	Server      Reason = "server"      // the server could not be reached, or took no writes
	TimeIsUp    Reason = "time is up"  // Options.Max
	Stopped     Reason = "stopped"     // the context has ended
	Failed      Reason = "failed"      // there was an error
)

// Counts say what a sweep has done.
type Counts struct {
	Deleted int64 // rows deleted; with DryRun, that would be
	Kept    int64 // rows that may not go yet
	Skipped int64 // rows that may, but were locked or just changed; the next sweep meets them again
	Pages   int64 // pages walked
}

func (c *Counts) add(other Counts) {
	c.Deleted += other.Deleted
	c.Kept += other.Kept
	c.Skipped += other.Skipped
	c.Pages += other.Pages
}

// Report is what came of one run over all that idem keeps.
type Report struct {
	Counts
	Tables   []Sweep
	DryRun   bool
	Duration time.Duration
}

// Sweep is what one run has done to one table. If it has gone on with the sweep of an earlier run, what that had walked is not
// among its counts.
type Sweep struct {
	Counts
	Table    string
	Ended    Reason
	Resumed  bool // it has gone on where an earlier run was
	Duration time.Duration
	Working  time.Duration // of that, as the server says
	Waited   map[Reason]time.Duration
	Standby  string // the slowest one, if it has waited for it
	Hidden   int64  // standbys whose lag the role may not see
}

// Progress is where a sweep is.
type Progress struct {
	Counts
	Table         string
	WalkedPages   int64  // of the whole sweep, with what earlier runs have walked
	TotalPages    int64  // as of its beginning
	Waiting       Reason // empty while it works
	PagesAPortion int
	Duration      time.Duration
}

// String is one line for people.
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

// logFailure is told what Run has done if no function of the user's is.
func logFailure(_ Report, err error) {
	if err != nil {
		slog.Warn("idem: purge failed, and is tried again", "error", err)
	}
}
