package db

// StepKind is the kind of a step.
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
	EndStep     StepKind = "end" // not a step: the final error or rejection of an operation

	// Started is the kind of an operation that was started inside another transaction and has no
	// recorded step yet.
	Started StepKind = "started"
)

// shownKind returns the kind of the step that callers see. It returns "" for an operation that was
// just started.
func shownKind(stored string) StepKind {
	if kind := StepKind(stored); kind != Started {
		return kind
	}
	return ""
}

// The policies of calls in doubt, as Step.Policy holds them. Every other policy is "keyed" with a
// window.
const (
	PolicyOnce  = "once"
	PolicyAsked = "asked"
)
