package db

import "time"

// OperationState is the state of an operation.
type OperationState string

const (
	OperationRunning   OperationState = "running"
	OperationParked    OperationState = "parked"
	OperationCompleted OperationState = "completed"
	OperationFailed    OperationState = "failed" // rejected and undone
	OperationUndone    OperationState = "undone" // canceled or ended in an error, and undone; its key is free
)

// The values of HoldKey.Room, which is the time until the record of an operation expires. Held is
// longer than any operation lasts. Free releases the key at once.
const (
	Held = "1000 years"
	Free = "0"
)

// Endless is the pause of an operation that awaits a child. Only the end of the child makes the
// operation due.
const Endless = 100 * 365 * 24 * time.Hour

// At says at which step an operation is after a commit, and when it continues.
type At struct {
	Kind   StepKind
	Step   string
	Seq    int           // the position of the step; 0 if no step is in progress, or if nothing of the step was sent
	Pause  time.Duration // the time until the operation is due
	Owner  int           // the instance that works on the operation; 0 if any process may claim the operation
	Tries  int
	Undos  int    // for a Call step that has begun: the number of undos of the step
	Policy string // for a Call step or an UndoCall that has begun: its policy
}

// StepError is the last error of an operation. An attempt at a step or a run of the function has
// returned it.
type StepError struct {
	Step    string // empty if the function failed
	Attempt int
	Text    []byte // the text of the error, sealed if the operation has a Sealer
}

// These methods return the fields of a StepError as parameters of a statement. If e is nil, they
// return nil, which becomes NULL.

func (e *StepError) step() *string {
	if e == nil {
		return nil
	}
	return &e.Step
}

func (e *StepError) attempt() *int {
	if e == nil {
		return nil
	}
	return &e.Attempt
}

func (e *StepError) text() []byte {
	if e == nil {
		return nil
	}
	return e.Text
}

// Suspected is the number of deaths after which an operation is a suspect. A death is a process
// that ended while it worked on the operation. The function of a suspect may be what kills the
// processes.
const Suspected = 3

// Lister lists the operations that a process works on. A request calls List when its statement is
// sent.
type Lister interface{ List() []string }

// WatchRoom limits how many due operations a guard reads at a time. Package presence explains
// guards.
const WatchRoom = 10_000
