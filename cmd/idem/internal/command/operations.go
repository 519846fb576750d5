package command

import (
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// shownOperation is the JSON of an operation.
type shownOperation struct {
	ID       string    `json:"operation_id"`
	Name     string    `json:"name"`
	Scope    string    `json:"scope"`
	Key      string    `json:"key"`
	State    string    `json:"state"`
	Step     string    `json:"step"`
	Undoing  bool      `json:"undoing"`
	Attempts int       `json:"attempts"`
	Since    time.Time `json:"since"`
	WakeAt   time.Time `json:"wake_at"`
	Attended bool      `json:"attended"`

	Reason     string          `json:"reason,omitempty"`      // reason code
	ReasonText string          `json:"reason_text,omitempty"` // the reason as a sentence
	LastError  *shownLastError `json:"last_error,omitempty"`
}

// shownLastError is the JSON of the last error of an operation.
type shownLastError struct {
	Step    string     `json:"step,omitempty"` // empty for an error of the function
	Attempt int        `json:"attempt"`
	At      time.Time  `json:"at"`
	NextAt  *time.Time `json:"next_at,omitempty"`
	Text    string     `json:"text"`
}

func newShownOperation(o record.Operation, wholeKey bool) shownOperation {
	shown := shownOperation{
		ID: o.ID, Name: o.Name, Scope: o.Scope, Key: jsonKey(o.Key, wholeKey), State: o.State, Step: o.Step, Undoing: o.Undoing,
		Attempts: o.Attempts, Since: o.Since.UTC(), WakeAt: o.WakeAt.UTC(), Attended: o.Attended, Reason: o.Reason, ReasonText: o.ReasonText,
	}
	if e := o.LastError; e != nil {
		shown.LastError = &shownLastError{e.Step, e.Attempt, e.At.UTC(), inUTC(e.NextAt), e.Text}
	}
	return shown
}

func newShownOperations(all []record.Operation, wholeKey bool) []shownOperation {
	shown := []shownOperation{}
	for _, o := range all {
		shown = append(shown, newShownOperation(o, wholeKey))
	}
	return shown
}

// tellOperations prints a title, a table of operations and a remedy. It prints nothing for an empty
// list.
func tellOperations(p *page.Page, title, remedy string, all []record.Operation) {
	if len(all) == 0 {
		return
	}
	p.Printf("%s\n", p.Bold(title))
	var rows [][]string
	for _, o := range all {
		rows = append(rows, []string{o.ID, page.Safe(o.Name), page.Safe(o.Step), page.Age(o.Now.Sub(o.Since)), reasonOf(&o), lastErrorOf(&o)})
	}
	p.Table([]page.Column{{Name: "OPERATION ID"}, {Name: "NAME"}, {Name: "STEP"}, {Name: "SINCE", Right: true}, {Name: "REASON"}, {Name: "LAST ERROR"}}, rows)
	p.Printf("%s\n\n", page.Wrap(remedy, "  ", 100))
}

// explainOperation sets the outcome of a call whose key belongs to an operation.
func (e *explanation) explainOperation(o *record.Operation) {
	switch {
	case o == nil:
		e.Verdict, e.Error, e.Reason = waits, "ErrInProgress", "an operation had the key a moment ago"
		e.Hint = "ask again"
	case o.State == record.Parked:
		e.Verdict, e.Error = refused, "operation.ErrParked"
		e.Reason = "operation " + o.ID + " (" + page.Safe(o.Name) + ") is parked at step " + page.Safe(o.Step) + ": " + page.Safe(o.Reason) + ": " + page.Safe(o.ReasonText)
		e.Hint = "see idem operation show " + o.ID + "; then: idem operation retry, resolve or cancel"
	default:
		e.Verdict, e.Error = waits, "ErrInProgress"
		e.Reason = "operation " + o.ID + " (" + page.Safe(o.Name) + ") is in progress, at step " + page.Safe(o.Step) + " since " + page.Time(o.Since)
		if !o.Attended {
			e.Reason += "; no process works on it"
			if last := lastErrorOf(o); last != "" {
				e.Reason += "; last error: " + last
			}
			e.Hint = "a Worker that knows it, or this call, resumes it; it is due at " + page.Time(o.WakeAt)
		}
	}
}
