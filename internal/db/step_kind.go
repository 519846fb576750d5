package db

// StepKind is the kind of a step.
type StepKind string

const (
	TxStep      StepKind = "tx"
	CallStep    StepKind = "call"
	UndoStep    StepKind = "undo"
	SleepStep   StepKind = "sleep"
	AwaitStep   StepKind = "await"
	ChildStep   StepKind = "child"
	ChangedStep StepKind = "changed"
	EndStep     StepKind = "end" // not a step: the final error or rejection of an operation

	// Started is the kind in the row of an operation that was begun by operation.Start or
	// operation.Child, and has no recorded step yet.
	Started StepKind = "started"
)

// shownKind returns a stored kind in the form that callers see: "" in place of Started.
func shownKind(stored string) StepKind {
	if kind := StepKind(stored); kind != Started {
		return kind
	}
	return ""
}

// The stored forms of the policies operation.Once and operation.Asked. The stored form of
// operation.Keyed is "keyed" with a window, such as "keyed 23h".
const (
	PolicyOnce  = "once"
	PolicyAsked = "asked"
)
