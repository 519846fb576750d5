package store

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// StepOutcome is what has come of a step.
type StepOutcome string

// The outcomes of steps.
const (
	StepBegun      StepOutcome = "begun"    // a call that has no end on record; it has a row only if it was begun together with others
	StepNotSent    StepOutcome = "not sent" // a call that was begun together with others, and has certainly not left
	StepDone       StepOutcome = "done"
	StepFailed     StepOutcome = "failed"      // the value is the error
	StepRolledBack StepOutcome = "rolled back" // done, and undone with its transaction when the operation was rejected
	StepWaiting    StepOutcome = "waiting"     // until DueAt, or for a signal
	StepRegistered StepOutcome = "registered"  // an undo that may have to be run
	StepUndone     StepOutcome = "undone"      // an undo that was run
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
}

// Queue adds the statement.
func (r *RecordStep) Queue(trip *roundtrip.Trip) {
	s := &r.Step
	var pause []byte
	if s.Outcome == StepWaiting && s.Kind != ChildStep || s.Outcome == StepBegun { // a child is waited for however long it takes
		pause = microseconds(r.Pause)
	}
	trip.Add(recordStep, []byte(r.OperationID), number(s.Seq), []byte(s.Kind), []byte(s.Name), pause, []byte(s.Outcome), s.Value)
}

// Read reads the answer.
func (r *RecordStep) Read(trip *roundtrip.Trip) { trip.Skip() }

// BegunCalls tells which of the calls that were begun together have no end on record.
type BegunCalls struct {
	OperationID string

	Calls []Step
}

// Queue adds the statement.
func (b *BegunCalls) Queue(trip *roundtrip.Trip) { trip.Add(begunCalls, []byte(b.OperationID)) }

// Read reads the answer.
func (b *BegunCalls) Read(trip *roundtrip.Trip) {
	b.Calls = nil
	trip.Rows(func(row *roundtrip.Row) {
		b.Calls = append(b.Calls, Step{Seq: row.Int(), Kind: CallStep, Name: row.Text(), Outcome: StepBegun})
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
func (l *ListSteps) Queue(trip *roundtrip.Trip) { trip.Add(listSteps, []byte(l.OperationID)) }

// Read reads the answer.
func (l *ListSteps) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		l.Steps = append(l.Steps, Remembered{
			Kind: StepKind(row.Text()), Name: row.Text(), Outcome: StepOutcome(row.Text()), DueAt: row.Time(), RecordedAt: row.Time(),
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
func (l *LoadSteps) Queue(trip *roundtrip.Trip) { trip.Add(loadSteps, []byte(l.OperationID)) }

// Read reads the answer.
func (l *LoadSteps) Read(trip *roundtrip.Trip) {
	l.Steps = nil // of an earlier try
	trip.Rows(func(row *roundtrip.Row) {
		l.Steps = append(l.Steps, readStep(row))
		l.LoadedAt = row.Time()
	})
}

func readStep(row *roundtrip.Row) Step {
	return Step{
		Seq: row.Int(), Kind: StepKind(row.Text()), Name: row.Text(), Outcome: StepOutcome(row.Text()), Value: row.Bytes(), DueAt: row.Time(),
	}
}

// LoadStepsOf reads all that some operations remember.
type LoadStepsOf struct {
	OperationIDs []string

	Steps map[string][]Step // by the id of their operation
}

// Queue adds the statement.
func (l *LoadStepsOf) Queue(trip *roundtrip.Trip) { trip.Add(loadStepsOf, array(l.OperationIDs)) }

// Read reads the answer.
func (l *LoadStepsOf) Read(trip *roundtrip.Trip) {
	l.Steps = map[string][]Step{}
	trip.Rows(func(row *roundtrip.Row) {
		id := row.Text()
		l.Steps[id] = append(l.Steps[id], readStep(row))
		row.Skip()
	})
}
