package record

import (
	"strings"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/operation"
)

// Remedy returns what to do about a SQLSTATE, or "" if it has no advice beyond the message of the
// server.
func Remedy(code string) string {
	switch code {
	case "42P01", "3F000", "42703": // undefined_table, invalid_schema_name, undefined_column
		return "the schema of idem is missing or out of date in this database: run idem migrate up, or check the address"
	case "42501": // insufficient_privilege
		return "this role lacks a privilege: see which with idem doctor, or connect as another role with -U; a change also needs INSERT on idem.audit"
	case "57014": // query_canceled
		return "the statement took longer than --timeout: use --scope or another filter, or raise --timeout"
	case "55P03": // lock_not_available
		return "another session holds a lock on it: try again, or see which session with idem stuck"
	case "25006": // read_only_sql_transaction
		return "this is a standby or a read-only connection: connect to the primary"
	case "57P01", "57P02", "57P03": // admin_shutdown, crash_shutdown, cannot_connect_now
		return "the server is starting or stopping: try again"
	}
	return ""
}

// nextSteps says in short what a person does about a parked operation, by the reason why it is
// parked. docs/operations-reference.md has the details.
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

// PreviewOfCancel describes in sentences what operation.Cancel would do to an operation.
func PreviewOfCancel(p *operation.CancelPreview) (sentences []string) {
	say := func(text string) { sentences = append(sentences, text) }
	if len(p.InDoubt) > 0 {
		say("The outcome of a call is in doubt: " + names(p.InDoubt) + ".")
	} else {
		say("No call is in doubt.")
	}
	if p.Asks {
		say("Cancel asks the other side whether the call happened.")
	}
	if p.Repeats {
		say("Cancel makes the call again under its key, so that its undo can run. The option without-calling prevents that.")
	}
	switch p.Parks {
	case "":
	case operation.ReasonCallInDoubt:
		say("The operation parks with call_in_doubt before anything is undone: a person must resolve the call.")
	default:
		say("The operation parks with " + string(p.Parks) + ", or stays parked: a person must decide.")
	}
	if len(p.Undos) > 0 {
		say("These steps are undone, in this order: " + names(p.Undos) + ".")
	} else {
		say("Nothing is undone.")
	}
	if len(p.Kept) > 0 {
		say("These steps are done and stay, because they have no undo: " + names(p.Kept) + ".")
	}
	return sentences
}

// names joins the names of steps for display.
func names(steps []string) string {
	shown := make([]string, len(steps))
	for i, step := range steps {
		shown[i] = page.Safe(step)
	}
	return strings.Join(shown, ", ")
}
