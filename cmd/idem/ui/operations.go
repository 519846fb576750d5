package ui

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/store"
)

var operationStates = []string{record.Parked, record.Running, record.Completed, record.Failed, record.UndoneState}

// operations is a list of operations of a state.
type operations struct {
	State      string
	States     []string
	Operations []record.Operation
	Next       string // the mark of the next page
}

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

// oneOperation is an operation and what it remembers.
type oneOperation struct {
	*record.Operation
	Timeline []event
	More     int // steps that are not shown
}

// event is a line of the timeline.
type event struct {
	Seq           int // 0: a signal
	At            time.Time
	Kind, Name    string
	Outcome, Mood string // mood is how it looks: bad, warn or empty
	Bytes         int64
	DueAt         *time.Time
}

// longestTimeline is how many steps are shown, the last ones.
const longestTimeline = 500

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
	if n := len(one.Timeline); n > longestTimeline {
		one.Timeline, one.More = one.Timeline[n-longestTimeline:], n-longestTimeline
	}
	return one, nil
}

// operationID is an id as the database writes it.
func operationID(text string) (string, error) {
	var id pgtype.UUID
	if id.Scan(text) != nil {
		return "", problemError{problem{http.StatusNotFound, "That is no operation id.", "An operation id is a UUID: the log, a record and idem operation list tell it."}}
	}
	return id.String(), nil
}

// timeline is what is on record, what is under way, and what was sent.
func timeline(o *record.Operation, steps []record.Step, sent []record.Sent) (all []event) {
	atWork := o.EndedAt == nil && o.Seq > 0
	for _, step := range steps {
		e := event{Seq: step.Seq, At: step.RecordedAt, Kind: step.Kind, Name: step.Name, Outcome: step.Outcome, Bytes: step.Value.Bytes}
		switch store.StepOutcome(step.Outcome) {
		case store.StepFailed:
			e.Mood = "bad"
		case store.StepBegun:
			e.Outcome, e.Mood = underWay(o)
		case store.StepRegistered:
			switch {
			case o.State == record.Completed:
				e.Outcome = "not needed"
			case atWork && step.Seq == o.Seq:
				e.Outcome, e.Mood = "under way", "warn"
			}
		case store.StepWaiting:
			e.Mood, e.DueAt = "warn", step.DueAt
		}
		atWork = atWork && step.Seq != o.Seq
		all = append(all, e)
	}
	if atWork {
		outcome, mood := underWay(o)
		all = append(all, event{Seq: o.Seq, At: o.Since, Kind: "call", Name: o.Step, Outcome: outcome, Mood: mood})
	}
	for _, signal := range sent {
		e := event{At: signal.SentAt, Kind: "signal", Name: signal.Name, Outcome: "taken", Bytes: signal.Value.Bytes}
		if !signal.Taken {
			e.Outcome, e.Mood = "not taken yet", "warn"
		}
		all = append(all, e)
	}
	return all
}

// underWay tells of a call that was begun and has no outcome.
func underWay(o *record.Operation) (outcome, mood string) {
	if o.State == record.Parked {
		return "begun", "bad"
	}
	return "under way", "warn"
}
