package db

import "time"

// StepOutcome is the recorded outcome of a step.
type StepOutcome string

const (
	// StepBegun is the outcome of a call that has begun and whose result is not known. Only a call
	// of operation.Parallel has a row with this outcome.
	StepBegun StepOutcome = "begun"
	// StepNotSent is the outcome of a call of operation.Parallel that was recorded as begun,
	// although no attempt was sent.
	StepNotSent    StepOutcome = "not sent"
	StepDone       StepOutcome = "done"
	StepResolved   StepOutcome = "resolved"    // done, with a value that a person has given
	StepFailed     StepOutcome = "failed"      // the step has returned an error, which is its value
	StepRolledBack StepOutcome = "rolled back" // the step was done, and its writes were rolled back when the operation was to be undone
	StepWaiting    StepOutcome = "waiting"     // the step waits until DueAt, for a signal, or for the end of a child
)

// Step is a recorded step. A statement sets only the fields that it reads: see its columns.
type Step struct {
	OperationID string // set only if the step is to be written
	Seq         int
	Kind        StepKind
	Name        string
	Outcome     StepOutcome
	Value       []byte
	// DueAt is the end of a pause. For a call that was begun by operation.Parallel, DueAt is the
	// time at which the call was begun. It is zero for other steps.
	DueAt      time.Time
	RecordedAt time.Time
	LoadedAt   time.Time
	Undos      int    // the number of undos of the step
	Policy     string // what to do if a begun call is in doubt, such as PolicyOnce; "" for other steps
}

// PauseEnd returns when a pause ends. It returns the zero time if the step is not a pause.
func (s *Step) PauseEnd() time.Time {
	if s.Kind == CallStep {
		return time.Time{}
	}
	return s.DueAt
}
