package db

import "time"

// OperationState is the state of an operation.
type OperationState string

// The states of an operation.
const (
	OperationRunning   OperationState = "running"
	OperationParked    OperationState = "parked"
	OperationCompleted OperationState = "completed"
	OperationFailed    OperationState = "failed" // rejected, and undone
	OperationUndone    OperationState = "undone" // ended in an error; its key is free
)

// The room of a HoldKey. A record that is held has to expire some day, because it has to have a moment; no call outlives that
// one.
const (
	Held = "1000 years"
	Free = "0"
)

// Endless is the pause of an operation that waits for a child: the child's end wakes it.
const Endless = 100 * 365 * 24 * time.Hour

// At is where an operation is after a commit.
type At struct {
	Kind   StepKind
	Step   string
	Seq    int           // 0 if no step is under way, also where nothing of the step was sent
	Pause  time.Duration // until a process has to look at it
	Owner  int           // 0 if it is for the next process
	Tries  int
	Undos  int    // of the call that is begun
	Policy string // of the call that is begun
}

// StepError is the last error of an operation: of an attempt at a step, or of a run of its function.
type StepError struct {
	Step    string // empty for the function
	Attempt int
	Text    []byte // sealed as values are
}

// The error as parameters, which are all NULL where there is none.

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

// Suspected is the number of deaths from which on an operation is a suspect: it may be the one that kills its processes.
const Suspected = 3

// Lister lists the operations that a process works on, at the moment at which a statement is sent.
type Lister interface{ List() []string }

// WatchRoom is how many operations that are due a guard reads at most.
const WatchRoom = 10_000
