package stats

import (
	"time"

	"github.com/idem-go/idem/internal/statsdb"
	"github.com/idem-go/idem/purge"
)

// Purge says how well the purge keeps up with expired rows.
type Purge struct {
	Sweeps Figure[[]Sweep]       // the sweep of each table that package purge has swept
	Lag    Figure[time.Duration] // the time since the start of the last complete sweep of the records
	Rate   Figure[float64]       // records deleted per second by the current sweep, or else by the last complete sweep
}

// Sweep returns the sweep of a table. It returns the zero Sweep if the table was never swept or
// p.Sweeps is unknown.
func (p *Purge) Sweep(table string) Sweep {
	for _, s := range p.Sweeps.Value {
		if s.Table == table {
			return s
		}
	}
	return Sweep{}
}

// rate sets Lag and Rate from the sweep of the records.
func (p *Purge) rate(s Sweep, oldestExpired Figure[time.Duration], now time.Time) {
	if !p.Sweeps.Known() {
		p.Lag, p.Rate = unknown[time.Duration](p.Sweeps.Note), unknown[float64](p.Sweeps.Note)
		return
	}
	const noSweep = "no sweep has completed yet"
	switch {
	case !s.LastStartedAt.IsZero():
		p.Lag = exact(max(now.Sub(s.LastStartedAt), 0))
	case oldestExpired.Known():
		p.Lag = estimate(oldestExpired.Value, noSweep+": this is how long ago the oldest expired record expired")
	default:
		p.Lag = unknown[time.Duration](noSweep + ", and " + oldestExpired.Note)
	}
	switch {
	case s.InProgress && s.Duration > 0:
		p.Rate = exact(float64(s.Deleted) / s.Duration.Seconds())
	case s.LastFinishedAt.After(s.LastStartedAt):
		p.Rate = exact(float64(s.LastDeleted) / s.LastFinishedAt.Sub(s.LastStartedAt).Seconds())
	default:
		p.Rate = unknown[float64](noSweep)
	}
}

// Sweep is the progress of the purge through one table. A sweep is complete when it has visited
// every page of the table.
type Sweep struct {
	Table string

	// The current sweep. These fields are zero if InProgress is false.
	InProgress bool
	StartedAt  time.Time
	Duration   time.Duration // from the start to the latest progress
	Pages      int64         // pages visited so far
	TotalPages int64
	Deleted    int64         // rows deleted so far
	Idle       time.Duration // the time since the latest heartbeat of the sweeping process; 0 if no process sweeps
	WaitingFor purge.Reason  // empty if the sweep does not wait

	// The last complete sweep. These fields are zero if there was none.
	LastStartedAt  time.Time
	LastFinishedAt time.Time
	LastDeleted    int64

	DeletedTotal int64 // rows deleted by all sweeps
}

// maxIdle is the age of a heartbeat above which the sweeping process counts as gone. Normally the
// process updates its heartbeat every few seconds.
const maxIdle = time.Minute

// Active reports whether a process is working on the current sweep. If the sweep is not active,
// another process resumes it.
func (s *Sweep) Active() bool { return s.InProgress && s.Idle > 0 && s.Idle <= maxIdle }

// Lag returns how long ago the last complete sweep started. If no sweep is complete yet, Lag
// returns the age of the current sweep, or 0 if there is none.
func (s *Sweep) Lag(now time.Time) time.Duration {
	started := s.LastStartedAt
	if started.IsZero() {
		started = s.StartedAt
	}
	if started.IsZero() {
		return 0
	}
	return max(now.Sub(started), 0)
}

func newSweeps(rows []statsdb.SweepsRow, now time.Time, err error) (Figure[[]Sweep], error) {
	if err != nil {
		return unknownBecause[[]Sweep](err, "idem.sweeps")
	}
	sweeps := make([]Sweep, len(rows))
	for i, row := range rows {
		s := Sweep{
			Table: row.Name, InProgress: row.StartedAt != 0, WaitingFor: purge.Reason(row.WaitingFor),
			Pages: row.Pages, TotalPages: row.TotalPages, Deleted: row.Deleted,
			StartedAt: timeOf(row.StartedAt), LastStartedAt: timeOf(row.LastStartedAt), LastFinishedAt: timeOf(row.LastFinishedAt),
			LastDeleted: row.LastDeleted, DeletedTotal: row.DeletedTotal,
		}
		if s.InProgress && row.ProgressedAt > row.StartedAt {
			s.Duration = durationOf(row.ProgressedAt - row.StartedAt)
		}
		if row.SeenAt != 0 {
			s.Idle = max(now.Sub(timeOf(row.SeenAt)), 0)
		}
		sweeps[i] = s
	}
	return exact(sweeps), nil
}
