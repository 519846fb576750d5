package db

// StepKind is what kind of step it is.
type StepKind string

// The kinds of steps.
const (
	TxStep      StepKind = "tx"
	CallStep    StepKind = "call"
	UndoStep    StepKind = "undo"
	SleepStep   StepKind = "sleep"
	AwaitStep   StepKind = "await"
	ChildStep   StepKind = "child"
	ChangedStep StepKind = "changed"
	EndStep     StepKind = "end" // no step: the error or the rejection in which an operation ends

	// Started is the kind of an operation that was started inside a transaction of another's, and has no recorded step.
	Started StepKind = "started"
)

// shownKind is the kind of the step that a caller is shown: an operation that was just started has none.
func shownKind(stored string) StepKind {
	if kind := StepKind(stored); kind != Started {
		return kind
	}
	return ""
}

// The policies of calls in doubt, as Step.Policy has them. Any other is "keyed" with a window.
const (
	PolicyOnce  = "once"
	PolicyAsked = "asked"
)
