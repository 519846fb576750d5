package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// Event is an entry of the timeline of an operation.
type Event struct {
	Seq           int // 0 for a signal
	At            time.Time
	Took          time.Duration // since the previous entry
	Kind, Name    string
	Outcome, Mood string // Mood is bad, warn or empty
	Value         Value
	DueAt         *time.Time
	Undo          string     // the state of its undo
	Child         string     // operation id of its child
	Error         *LastError // the error of its last attempt
}

// Events returns the steps and the calls in progress in the order of their numbers, with the
// signals between them.
//
// A call that began alone has no row in steps until its outcome is known, so its entry comes from
// Doubts. A signal has no number. It is inserted before the first entry that is later. The last
// error belongs to the last entry with the name of its step.
func Events(o *Operation, steps []Step, sent []Sent) (all []Event) {
	recorded, undone := map[int]bool{}, map[string]int{}
	for _, step := range steps {
		if step.Kind == string(db.UndoStep) {
			name, _ := UndoOf(step.Name)
			undone[name] = step.Seq
		}
	}
	for _, step := range steps {
		recorded[step.Seq] = true
		e := Event{Undo: undoOf(&step, undone[step.Name]), Seq: step.Seq, At: step.RecordedAt, Kind: step.Kind, Name: step.Name, Outcome: step.Outcome, Value: step.Value, Child: step.Child}
		if step.Kind == string(db.UndoStep) {
			e.Name = UndoName(step.Name)
		}
		switch outcome := db.StepOutcome(step.Outcome); {
		case step.Kind == string(db.EndStep):
			e.Name, e.Outcome = "", "undo decided"
		case outcome == db.StepFailed:
			e.Mood = "bad"
		case outcome == db.StepBegun:
			e.Outcome, e.Mood = inProgress(o)
		case outcome == db.StepWaiting:
			e.Mood, e.DueAt = "warn", step.DueAt
		}
		all = append(all, e)
	}
	for _, d := range Doubts(o, steps) {
		if !recorded[d.Seq] {
			outcome, mood := inProgress(o)
			all = append(all, Event{Seq: d.Seq, At: o.Since, Kind: d.Kind, Name: UndoName(d.Name), Outcome: outcome, Mood: mood})
		}
	}
	slices.SortFunc(all, func(a, b Event) int { return a.Seq - b.Seq })
	for _, signal := range sent {
		e := Event{At: signal.SentAt, Kind: "signal", Name: signal.Name, Outcome: "received", Value: signal.Value}
		if !signal.Taken {
			e.Outcome, e.Mood = "not received yet", "warn"
		}
		at := slices.IndexFunc(all, func(other Event) bool { return other.At.After(e.At) })
		if at < 0 {
			at = len(all)
		}
		all = slices.Insert(all, at, e)
	}
	before := o.CreatedAt
	for i := range all {
		all[i].Took, before = max(all[i].At.Sub(before), 0), all[i].At
	}
	if o.LastError != nil {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].Seq > 0 && all[i].Name == o.LastError.Step {
				all[i].Error = o.LastError
				break
			}
		}
	}
	return all
}

// undoOf describes the undo of a step. undoneBy is the number of the undo that undid the step, or
// 0.
func undoOf(step *Step, undoneBy int) string {
	switch {
	case step.Kind != string(db.TxStep) && step.Kind != string(db.CallStep):
		return ""
	case undoneBy > 0:
		return fmt.Sprintf("undone by #%d", undoneBy)
	case step.Undos > 0:
		return "can be undone"
	}
	return "has no undo"
}

// inProgress returns outcome and mood of a call that has begun and has no recorded outcome.
func inProgress(o *Operation) (outcome, mood string) {
	if o.State == Parked {
		return "begun", "bad"
	}
	return "in progress", "warn"
}
