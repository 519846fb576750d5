package store

// StepKind is what kind of step it is.
type StepKind string

// The kinds of steps.
const (
	TxStep      StepKind = "tx"
	CallStep    StepKind = "call"
	UndoTxStep  StepKind = "undo tx"
	UndoStep    StepKind = "undo"
	SleepStep   StepKind = "sleep"
	AwaitStep   StepKind = "await"
	ChildStep   StepKind = "child"
	ChangedStep StepKind = "changed"
	EndStep     StepKind = "end" // of an operation that has ended in an error: no step, but its last row

	// Started is of no step: the operation was started inside a transaction of another's, and remembers nothing yet.
	Started StepKind = "started"
)
