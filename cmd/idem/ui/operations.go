package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

var operationStates = []string{record.Parked, record.Running, record.Completed, record.Failed, record.UndoneState}

// operations is the data of the list of operations in one state.
type operations struct {
	State      string
	States     []string
	Operations []record.Operation
	Next       string // mark of the next page; empty on the last page
}

// readOperations reads a page of operations in one state.
func readOperations(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	list := operations{State: asked.Get("state"), States: operationStates}
	if list.State == "" {
		list.State = record.Parked
	}
	var after *record.Mark
	if text := asked.Get("after"); text != "" {
		after = new(record.Mark)
		if unmark(text, after) != nil || new(pgtype.UUID).Scan(after.ID) != nil || after.At.Year() > 9999 {
			return nil, errMark
		}
	}
	if !slices.Contains(operationStates, list.State) {
		return nil, problemError{problem{http.StatusBadRequest, "There is no such state of an operation.", ""}}
	}
	found, next, err := record.OperationsPortion(ctx, tx, list.State, asked.Get("name"), after, rows)
	list.Operations = found
	if next != nil {
		list.Next = mark(next)
	}
	return list, err
}

// oneOperation is the data of the page of an operation.
type oneOperation struct {
	*record.Operation
	Doubts   []doubt // calls without a recorded outcome
	Timeline []event
	More     int // number of steps that are not shown
	// Undos are the steps with an undo that is still to run. Kept are the steps that are done and
	// stay.
	Undos, Kept []string
	Preview     []string // effects of Cancel; empty if the operation has ended
}

// doubt is a call without a recorded outcome.
type doubt struct {
	record.Doubt
	Step    string // name for people
	CallKey string // key that the other side knows the call by
}

// event is an entry of the timeline.
type event struct {
	Seq           int // 0 for a signal
	At            time.Time
	Took          time.Duration // time since the previous entry
	Kind, Name    string
	Outcome, Mood string // Mood is a style: bad, warn or empty
	Bytes         int64
	DueAt         *time.Time
	Undo          string            // state of its undo
	Child         string            // ID of the child operation that it began
	Error         *record.LastError // the last error, if it belongs to this step
}

// longestTimeline is the maximum number of steps on the page. The last steps are shown.
const longestTimeline = 500

// readOperation reads an operation with its steps, signals and calls in doubt. It reads no values.
func readOperation(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	id, err := operationID(asked.Get("id"))
	if err != nil {
		return nil, err
	}
	o, err := record.FindOperation(ctx, tx, id)
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, problemError{noOperation}
	}
	steps, sent, err := record.Timeline(ctx, tx, o, false)
	if err != nil {
		return nil, err
	}
	one := oneOperation{Operation: o, Timeline: timeline(o, steps, sent)}
	for _, d := range record.Doubts(o, steps) {
		one.Doubts = append(one.Doubts, doubt{d, record.UndoName(d.Name), operation.CallKey(o.ID, d.Kind, d.Name)})
	}
	if n := len(one.Timeline); n > longestTimeline {
		one.Timeline, one.More = one.Timeline[n-longestTimeline:], n-longestTimeline
	}
	return one, nil
}

// previewCancel adds the effects of a Cancel to an operation, and opens its last error if the page
// has the keys.
func previewCancel(ctx context.Context, s *site, data any) (any, error) {
	one := data.(oneOperation)
	one.LastError.Open(one.ID, s.Sealer)
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	status, err := operation.Show(ctx, s.Pool, one.ID)
	if err != nil {
		return one, unlessGone(err)
	}
	one.Undos, one.Kept = status.Undos, status.Kept
	for i := range one.Timeline {
		if e := &one.Timeline[i]; slices.Contains(one.Undos, e.Name) && e.Undo != "" {
			e.Undo = "its undo is still to run"
		}
	}
	if one.EndedAt != nil {
		return one, nil
	}
	p, err := operation.PreviewCancel(ctx, s.Pool, one.ID)
	if err == nil {
		one.Preview = record.PreviewOfCancel(&p)
	}
	return one, unlessGone(err)
}

// unlessGone returns err, or nil if the operation has ended or was purged since it was read.
func unlessGone(err error) error {
	if errors.Is(err, operation.ErrNotParked) || errors.Is(err, operation.ErrUnknownOperation) {
		return nil
	}
	return err
}

// openErrors opens the last errors of the operations of a list.
func openErrors(_ context.Context, s *site, data any) (any, error) {
	list := data.(operations)
	record.OpenErrors(list.Operations, s.Sealer)
	return list, nil
}

// operationID returns an operation ID in the form that Postgres prints, or a problemError.
func operationID(text string) (string, error) {
	var id pgtype.UUID
	if id.Scan(text) != nil {
		return "", problemError{problem{http.StatusNotFound, "That is no operation id.", "An operation id is a UUID: the log, a record and idem operation list tell it."}}
	}
	return id.String(), nil
}

// timeline returns the recorded steps and the calls in progress by sequence number. Signals are
// inserted by time.
func timeline(o *record.Operation, steps []record.Step, sent []record.Sent) (all []event) {
	recorded, undone := map[int]bool{}, map[string]int{}
	for _, step := range steps {
		if step.Kind == string(db.UndoStep) {
			name, _ := record.UndoOf(step.Name)
			undone[name] = step.Seq
		}
	}
	for _, step := range steps {
		recorded[step.Seq] = true
		e := event{Undo: undoOf(&step, undone[step.Name]), Seq: step.Seq, At: step.RecordedAt, Kind: step.Kind, Name: step.Name, Outcome: step.Outcome, Bytes: step.Value.Bytes}
		if step.Kind == string(db.UndoStep) {
			e.Name = record.UndoName(step.Name)
		}
		if step.Kind == string(db.ChildStep) {
			e.Child = operation.ChildID(o.ID, step.Name)
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
	for _, d := range record.Doubts(o, steps) {
		if !recorded[d.Seq] {
			outcome, mood := inProgress(o)
			all = append(all, event{Seq: d.Seq, At: o.Since, Kind: d.Kind, Name: o.Begun, Outcome: outcome, Mood: mood})
		}
	}
	slices.SortFunc(all, func(a, b event) int { return a.Seq - b.Seq })
	for _, signal := range sent {
		e := event{At: signal.SentAt, Kind: "signal", Name: signal.Name, Outcome: "received", Bytes: signal.Value.Bytes}
		if !signal.Taken {
			e.Outcome, e.Mood = "not received yet", "warn"
		}
		at := slices.IndexFunc(all, func(other event) bool { return other.At.After(e.At) })
		if at < 0 {
			at = len(all)
		}
		all = slices.Insert(all, at, e)
	}
	// Each entry took the time since the previous one.
	before := o.CreatedAt
	for i := range all {
		all[i].Took, before = max(all[i].At.Sub(before), 0), all[i].At
	}
	// The last error belongs to the latest entry with the name of its step.
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

// undoOf describes the undo of a step. The number undoneBy is that of the step that undid it, or 0.
func undoOf(step *record.Step, undoneBy int) string {
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

// inProgress returns the outcome and the style of a call that was begun and has no outcome yet.
func inProgress(o *record.Operation) (outcome, mood string) {
	if o.State == record.Parked {
		return "begun", "bad"
	}
	return "in progress", "warn"
}
