package db

import "time"

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

// Step is a recorded step. A statement that lists steps says which fields it reads.
type Step struct {
	OperationID string // whose step it is, if the steps of several are read
	Seq         int
	Kind        StepKind
	Name        string
	Outcome     StepOutcome
	Value       []byte
	DueAt       time.Time // of a pause; of a call that was begun together with others, when that was; zero if there is none
	RecordedAt  time.Time
	LoadedAt    time.Time
	Undos       int    // how many undos the step has
	Policy      string // of a call that was begun
}

// PauseEnd returns when a pause is over, zero if the step is none.
func (s *Step) PauseEnd() time.Time {
	if s.Kind == CallStep {
		return time.Time{}
	}
	return s.DueAt
}
