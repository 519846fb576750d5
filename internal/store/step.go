package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// StepOutcome is what has come of a step.
type StepOutcome string

// The outcomes of steps.
const (
	StepBegun      StepOutcome = "begun"    // a call that has no end on record; it has a row only if it was begun together with others
	StepNotSent    StepOutcome = "not sent" // a call that was begun together with others, and has certainly not left
	StepDone       StepOutcome = "done"
	StepResolved   StepOutcome = "resolved"    // a call that is done as a person says, who has given the value
	StepFailed     StepOutcome = "failed"      // the value is the error
	StepRolledBack StepOutcome = "rolled back" // done, and undone with its transaction when the operation was rejected
	StepWaiting    StepOutcome = "waiting"     // until DueAt, or for a signal
	StepRegistered StepOutcome = "registered"  // an undo that may have to be run
	StepUndone     StepOutcome = "undone"      // an undo that was run
	StepNotNeeded  StepOutcome = "not needed"  // an undo that was not run: none of what it takes back is done
)

// Step is what is remembered of a step.
type Step struct {
	Seq     int
	Kind    StepKind
	Name    string
	Outcome StepOutcome
	Value   []byte
	DueAt   time.Time // of a pause; of a call that was begun together with others, when that was; zero if there is none
}

// RecordStep remembers a step.
type RecordStep struct {
	OperationID string
	Step        Step
	Pause       time.Duration // until it is due, if it waits; of a call that was begun, how long ago that was, as a negative number
	Keeps       bool          // when it was begun stays what is on record
	First       bool          // it has no row yet
}

// Queue adds the statement.
func (r *RecordStep) Queue(trip *roundtrip.Trip) {
	s := &r.Step
	q := db.RecordStep{OperationID: r.OperationID, Seq: s.Seq, Kind: string(s.Kind), Name: s.Name, Outcome: string(s.Outcome), Value: s.Value}
	if s.Outcome == StepWaiting && s.Kind != ChildStep || s.Outcome == StepBegun && !r.Keeps { // a child is waited for however long it takes
		q.Pause = &r.Pause
	}
	if r.First {
		db.InsertStep(q).Queue(trip)
		return
	}
	q.Queue(trip)
}

// Read reads the answer.
func (r *RecordStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// BegunCalls tells which of the calls that were begun together have no end on record, and the call whose value, as a person has given it,
// does not fit.
type BegunCalls struct {
	OperationID string

	Calls []Step
}

// Queue adds the statement.
func (b *BegunCalls) Queue(trip *roundtrip.Trip) {
	q := db.BegunCalls{OperationID: b.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (b *BegunCalls) Read(trip *roundtrip.Trip) {
	b.Calls = nil
	var q db.BegunCalls
	q.Each(trip, func(row *db.BegunCallsRow) {
		b.Calls = append(b.Calls, Step{Seq: row.Seq, Kind: CallStep, Name: row.Name, Outcome: StepBegun})
	})
}

// Remembered is what is told of a step to who has no use for its value.
type Remembered struct {
	Kind       StepKind
	Name       string
	Outcome    StepOutcome
	DueAt      time.Time // of a pause; zero if there is none
	RecordedAt time.Time
}

// PauseEnd returns when a pause is over, zero if the step is none.
func (r *Remembered) PauseEnd() time.Time {
	if r.Kind == CallStep {
		return time.Time{}
	}
	return r.DueAt
}

// ListSteps tells what an operation remembers.
type ListSteps struct {
	OperationID string

	Steps []Remembered
}

// Queue adds the statement.
func (l *ListSteps) Queue(trip *roundtrip.Trip) {
	q := db.ListSteps{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListSteps) Read(trip *roundtrip.Trip) {
	var q db.ListSteps
	q.Each(trip, func(row *db.ListStepsRow) {
		l.Steps = append(l.Steps, Remembered{
			Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), DueAt: row.DueAt, RecordedAt: row.RecordedAt,
		})
	})
}

// LoadSteps reads all that an operation remembers.
type LoadSteps struct {
	OperationID string

	Steps    []Step
	LoadedAt time.Time
}

// Queue adds the statement.
func (l *LoadSteps) Queue(trip *roundtrip.Trip) {
	q := db.LoadSteps{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (l *LoadSteps) Read(trip *roundtrip.Trip) {
	l.Steps = nil // of an earlier try
	var q db.LoadSteps
	q.Each(trip, func(row *db.LoadStepsRow) {
		l.Steps = append(l.Steps, Step{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), Value: row.Value, DueAt: row.DueAt,
		})
		l.LoadedAt = row.LoadedAt
	})
}

// LoadStepsOf reads all that some operations remember.
type LoadStepsOf struct {
	OperationIDs []string

	Steps map[string][]Step // by the id of their operation
}

// Queue adds the statement.
func (l *LoadStepsOf) Queue(trip *roundtrip.Trip) {
	q := db.LoadStepsOf{OperationIDs: array(l.OperationIDs)}
	q.Queue(trip)
}

// Read reads the answer.
func (l *LoadStepsOf) Read(trip *roundtrip.Trip) {
	l.Steps = map[string][]Step{}
	var q db.LoadStepsOf
	q.Each(trip, func(row *db.LoadStepsOfRow) {
		l.Steps[row.OperationID] = append(l.Steps[row.OperationID], Step{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), Value: row.Value, DueAt: row.DueAt,
		})
	})
}

// LoadHistory reads an operation with all that it remembers, as of one moment.
type LoadHistory struct {
	OperationID string

	Found     bool
	Name      string
	State     OperationState
	Undoing   bool
	Cancelled bool
	Input     []byte
	Steps     []Step
}

// Queue adds the statement.
func (l *LoadHistory) Queue(trip *roundtrip.Trip) {
	q := db.LoadHistory{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (l *LoadHistory) Read(trip *roundtrip.Trip) {
	l.Found, l.Steps = false, nil
	var q db.LoadHistory
	q.Each(trip, func(row *db.LoadHistoryRow) {
		if row.Seq == 0 {
			l.Found, l.Name, l.State, l.Undoing, l.Cancelled, l.Input = true, row.Name, OperationState(row.Outcome), row.Undoing, row.Cancelled, row.Value
			return
		}
		l.Steps = append(l.Steps, Step{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), Value: row.Value,
		})
	})
}
