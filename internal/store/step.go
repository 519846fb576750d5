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
	StepBegun      StepOutcome = "begun"    // a call without a recorded outcome; it has a row only if it was begun together with others
	StepNotSent    StepOutcome = "not sent" // a call that was begun together with others, and of which no attempt was sent
	StepDone       StepOutcome = "done"
	StepResolved   StepOutcome = "resolved"    // done, with the value that a person has given
	StepFailed     StepOutcome = "failed"      // the value is the error
	StepRolledBack StepOutcome = "rolled back" // done, and rolled back when it was decided to undo the operation
	StepWaiting    StepOutcome = "waiting"     // until DueAt, for a signal, or for the end of a child
)

// Step is a recorded step.
type Step struct {
	Seq     int
	Kind    StepKind
	Name    string
	Outcome StepOutcome
	Value   []byte
	DueAt   time.Time // of a pause; of a call that was begun together with others, when that was; zero if there is none
	Undos   int       // how many undos the step has
	Policy  string    // of a call that was begun
}

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
	s := &r.Step
	q := db.RecordStep{OperationID: r.OperationID, Seq: s.Seq, Kind: string(s.Kind), Name: s.Name, Outcome: string(s.Outcome), Value: s.Value,
		Undos: orNullNumber(s.Undos), Policy: orNull(s.Policy)}
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

// CallsInDoubt lists the calls that were begun and have no recorded outcome, behind the call whose value, as a person has given it, does
// not decode.
type CallsInDoubt struct {
	OperationID string

	Calls []InDoubt
}

// InDoubt is one of them.
type InDoubt struct {
	Step
	HasRow bool
}

// Queue adds the statement.
func (c *CallsInDoubt) Queue(trip *roundtrip.Trip) {
	q := db.CallsInDoubt{OperationID: c.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (c *CallsInDoubt) Read(trip *roundtrip.Trip) {
	c.Calls = nil
	var q db.CallsInDoubt
	q.Each(trip, func(row *db.CallsInDoubtRow) {
		c.Calls = append(c.Calls, InDoubt{HasRow: row.HasRow, Step: Step{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), Undos: row.Undos, Policy: row.Policy,
		}})
	})
}

// StepSummary is a step without its value.
type StepSummary struct {
	Seq        int
	Kind       StepKind
	Name       string
	Outcome    StepOutcome
	DueAt      time.Time // of a pause; zero if there is none
	RecordedAt time.Time
	Undos      int
	Policy     string
}

// PauseEnd returns when a pause is over, zero if the step is none.
func (r *StepSummary) PauseEnd() time.Time {
	if r.Kind == CallStep {
		return time.Time{}
	}
	return r.DueAt
}

// ListSteps reads the recorded steps without their values.
type ListSteps struct {
	OperationID string

	Steps []StepSummary
}

// Queue adds the statement.
func (l *ListSteps) Queue(trip *roundtrip.Trip) {
	q := db.ListSteps{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListSteps) Read(trip *roundtrip.Trip) {
	l.Steps = nil
	var q db.ListSteps
	q.Each(trip, func(row *db.ListStepsRow) {
		l.Steps = append(l.Steps, StepSummary{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), DueAt: row.DueAt, RecordedAt: row.RecordedAt,
			Undos: row.Undos, Policy: row.Policy,
		})
	})
}

// LoadSteps reads the recorded steps of an operation.
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
			Undos: row.Undos, Policy: row.Policy,
		})
		l.LoadedAt = row.LoadedAt
	})
}

// LoadStepsOf reads the recorded steps of some operations.
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
			Undos: row.Undos, Policy: row.Policy,
		})
	})
}

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
	q := db.LoadHistory{OperationID: l.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (l *LoadHistory) Read(trip *roundtrip.Trip) {
	l.Found, l.Steps = false, nil
	var q db.LoadHistory
	q.Each(trip, func(row *db.LoadHistoryRow) {
		if row.Seq == 0 {
			l.Found, l.Name, l.State, l.Undoing, l.Canceled, l.Input = true, row.Name, OperationState(row.Outcome), row.Undoing, row.Canceled, row.Value
			return
		}
		l.Steps = append(l.Steps, Step{
			Seq: row.Seq, Kind: StepKind(row.Kind), Name: row.Name, Outcome: StepOutcome(row.Outcome), Value: row.Value, Undos: row.Undos,
		})
	})
}
