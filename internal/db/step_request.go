package db

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// RecordStep records a step.
type RecordStep struct {
	OperationID string
	Step        Step
	Pause       time.Duration // until it is due, if it waits; of a call that was begun, how long ago that was, as a negative number
	Keeps       bool          // when it was begun stays what is on record
	First       bool          // it has no row yet
}

// Queue adds the statement.
func (r *RecordStep) Queue(trip *roundtrip.Trip) {
	s := r.Step
	s.OperationID = r.OperationID
	q := recordStep{Step: s}
	if s.Outcome == StepWaiting && s.Kind != ChildStep || s.Outcome == StepBegun && !r.Keeps { // a child is waited for however long it takes
		q.Pause = &r.Pause
	}
	if r.First {
		insertStep(q).Queue(trip)
		return
	}
	q.Queue(trip)
}

// Read reads the answer.
func (r *RecordStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// LoadHistory reads an operation with its recorded steps, as of one moment.
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

// Queue adds the statement.
func (l *LoadHistory) Queue(trip *roundtrip.Trip) {
	q := loadHistory{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
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
