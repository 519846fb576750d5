package vitals

import (
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// Sweep is how far a table is swept.
type Sweep struct {
	Name         string        `json:"name"`
	Under        bool          `json:"under_way"`
	WaitingFor   string        `json:"waiting_for,omitempty"`
	Pages        int64         `json:"pages"`
	TotalPages   int64         `json:"total_pages"`
	Deleted      int64         `json:"deleted"`
	Took         time.Duration `json:"took"`           // so far
	Silent       time.Duration `json:"silent"`         // since the last sign of life of the purge; 0 if none sweeps
	Began        time.Time     `json:"began,omitzero"` // of the one under way
	LastBegan    time.Time     `json:"last_began,omitzero"`
	LastEnded    time.Time     `json:"last_ended,omitzero"`
	LastDeleted  int64         `json:"last_deleted"`
	DeletedTotal int64         `json:"deleted_total"`
}

// longSilence is from when on a process that sweeps is taken to be gone: a portion and a pause take seconds.
const longSilence = time.Minute

// Live reports whether a process is at the sweep that is under way. Another one goes on where it was left.
func (s *Sweep) Live() bool { return s.Under && s.Silent > 0 && s.Silent <= longSilence }

// Lag is how long ago the last whole sweep began, or, if there was none, the one under way. It is 0 if there is neither.
func (s *Sweep) Lag(at time.Time) time.Duration {
	if s.LastBegan.IsZero() && s.Began.IsZero() {
		return 0
	}
	began := s.LastBegan
	if began.IsZero() {
		began = s.Began
	}
	return max(at.Sub(began), 0)
}

// sweepsOf makes figures of what is known of the sweeps. That they cannot be read is no error of the reader's.
func sweepsOf(rows []db.SweepsRow, at time.Time, err error) (Figure[[]Sweep], error) {
	if err != nil {
		return unread[[]Sweep](err, "idem.sweeps", "there is no such table idem.sweeps")
	}
	sweeps := []Sweep{}
	for _, row := range rows {
		sweeps = append(sweeps, sweepOf(row, at))
	}
	return exact(sweeps), nil
}

func sweepOf(row db.SweepsRow, at time.Time) Sweep {
	s := Sweep{
		Name: row.Name, Under: row.StartedAt != 0, WaitingFor: row.WaitingFor,
		Pages: row.Pages, TotalPages: row.TotalPages, Deleted: row.Deleted,
		Began: moment(row.StartedAt), LastBegan: moment(row.LastStartedAt), LastEnded: moment(row.LastFinishedAt),
		LastDeleted: row.LastDeleted, DeletedTotal: row.DeletedTotal,
	}
	if s.Under && row.ProgressedAt > row.StartedAt {
		s.Took = moment(row.ProgressedAt).Sub(moment(row.StartedAt))
	}
	if row.SeenAt != 0 {
		s.Silent = max(at.Sub(moment(row.SeenAt)), 0)
	}
	return s
}

// rate tells how the purge of the records keeps up.
func (v *Vitals) rate() {
	if !v.Sweeps.Known() {
		v.PurgeLag, v.PurgeSpeed = unknown[time.Duration](v.Sweeps.Note), unknown[float64](v.Sweeps.Note)
		return
	}
	s := v.sweepOfRecords()
	switch {
	case !s.LastBegan.IsZero():
		v.PurgeLag = exact(max(v.At.Sub(s.LastBegan), 0))
	case v.OldestExpired.Known():
		v.PurgeLag = estimate(v.OldestExpired.Value, "there was no whole sweep yet: how long the oldest expired record has been there")
	default:
		v.PurgeLag = unknown[time.Duration]("there was no whole sweep yet, and " + v.OldestExpired.Note)
	}
	switch {
	case s.Under && s.Took > 0:
		v.PurgeSpeed = exact(float64(s.Deleted) / s.Took.Seconds())
	case s.LastEnded.After(s.LastBegan):
		v.PurgeSpeed = exact(float64(s.LastDeleted) / s.LastEnded.Sub(s.LastBegan).Seconds())
	default:
		v.PurgeSpeed = unknown[float64]("there was no whole sweep yet")
	}
}

func (v *Vitals) sweepOfRecords() Sweep {
	for _, s := range v.Sweeps.Value {
		if s.Name == "records" {
			return s
		}
	}
	return Sweep{}
}
