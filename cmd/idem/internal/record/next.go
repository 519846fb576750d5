package record

import "github.com/idem-go/idem/operation"

// nextSteps says in short what a person does about each reason. docs/operations-reference.md has
// the details.
var nextSteps = map[operation.Reason]string{
	operation.ReasonCallInDoubt:       "Ask the other side by the key of the call whether it happened, then resolve. Retry makes a Keyed call again within its window.",
	operation.ReasonAttemptsExhausted: "Ask the other side by the key of the call whether it happened, then resolve. Or retry for as many attempts again.",
	operation.ReasonCodeChanged:       "Deploy code that asks for the recorded steps, then retry. Or cancel, and without code if it parks again.",
	operation.ReasonValueUnreadable:   "Deploy code that reads the value, then retry. If a person gave the value, resolve again.",
	operation.ReasonSignalUnreadable:  "Send another signal of that name, which replaces this one, then retry.",
	operation.ReasonUndoFailed:        "Repair the cause, then retry. If the undo was done by hand, resolve it as happened.",
	operation.ReasonTxEnded:           "Remove by hand what the step wrote since the last commit. Then retry with code that does not end its transaction, or cancel.",
	operation.ReasonFunctionFailed:    "Deploy code that works, then retry. Or cancel without code.",
	operation.ReasonTooManyDeaths:     "Find out why the processes end, then retry.",
}

// NextStep returns what a person should do about an operation that is parked for reason.
func NextStep(reason string) string {
	if next, known := nextSteps[operation.Reason(reason)]; known {
		return next
	}
	return "docs/operations-reference.md says what to do about this reason."
}
