package db

import "time"

// OperationState is the state of an operation.
type OperationState string

// The states of an operation.
const (
	OperationRunning   OperationState = "running"
	OperationParked    OperationState = "parked"
	OperationCompleted OperationState = "completed"
	OperationFailed    OperationState = "failed" // rejected and undone
	OperationUndone    OperationState = "undone" // ended in an error; its key is free
)

// The values of HoldKey.Room. A held record needs a moment of expiry, and Held is longer than any
// operation lasts.
const (
	Held = "1000 years"
	Free = "0"
)

// Endless is the pause of an operation that awaits a child. The end of the child wakes the
// operation.
const Endless = 100 * 365 * 24 * time.Hour

// At is the step and the next action of an operation after a commit.
type At struct {
	Kind   StepKind
	Step   string
	Seq    int           // 0 if no step is in progress, or no part of the step was sent
	Pause  time.Duration // until the operation is due
	Owner  int           // 0 if any process may claim the operation
	Tries  int
	Undos  int    // of the call that was begun
	Policy string // of the call that was begun
}

// StepError is the last error of an operation, from an attempt at a step or from a run of its
// function.
type StepError struct {
	Step    string // empty if the function failed
	Attempt int
	Text    []byte // sealed like a value
}

// These methods return the parameters of a StepError. Without an error they are NULL.

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

// Suspected is the number of deaths at which an operation becomes a suspect: it may be what kills
// its processes.
const Suspected = 3

// Lister lists the operations that a process works on. A request calls it when the statement is
// sent.
type Lister interface{ List() []string }

// WatchRoom limits how many due operations a guard reads.
const WatchRoom = 10_000
