package db

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// RecordStep writes the row of a step.
type RecordStep struct {
	OperationID string
	Step        Step
	// Pause is the time until a waiting step is due. For a call that was begun, Pause is the time
	// since the call was begun, as a negative number.
	Pause time.Duration
	Keeps bool // keep the stored time at which the call was begun
	First bool // the step has no row yet
}

func (r *RecordStep) Queue(trip *roundtrip.Trip) {
	s := r.Step
	s.OperationID = r.OperationID
	q := recordStep{Step: s}
	// A step that awaits a child has no due time.
	if s.Outcome == StepWaiting && s.Kind != ChildStep || s.Outcome == StepBegun && !r.Keeps {
		q.Pause = &r.Pause
	}
	if r.First {
		insertStep(q).Queue(trip)
		return
	}
	q.Queue(trip)
}

func (r *RecordStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// LoadHistory reads an operation and its recorded steps in one snapshot.
type LoadHistory struct {
	OperationID string

	Found    bool
	Name     string
	State    OperationState
	Undoing  bool
	Canceled bool
	Input    []byte
	Steps    []Step
}

func (l *LoadHistory) Queue(trip *roundtrip.Trip) {
	q := loadHistory{OperationID: l.OperationID}
	q.Queue(trip)
}

func (l *LoadHistory) Read(trip *roundtrip.Trip) {
	l.Found, l.Steps = false, nil
	var q loadHistory
	q.each(trip, func(row *loadHistoryRow) {
		if row.Seq == 0 {
			l.Found, l.Name, l.State, l.Undoing, l.Canceled, l.Input = true, row.Name, OperationState(row.Outcome), row.Undoing, row.Canceled, row.Value
			return
		}
		l.Steps = append(l.Steps, row.Step)
	})
}
