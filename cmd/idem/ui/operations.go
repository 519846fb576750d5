package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/operation"
)

var operationStates = []string{record.Parked, record.Running, record.Completed, record.Failed, record.UndoneState}

// operations is the data of the list of operations in a state.
type operations struct {
	State      string
	States     []string
	Operations []record.Operation
	Next       string // encoded position of the next page; empty on the last page
}

// readOperations reads the operations of a state. If no state is given, it reads the parked
// operations, because they wait for a person.
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
	found, next, err := record.OperationsPage(ctx, tx, list.State, asked.Get("name"), after, rows)
	list.Operations = found
	if next != nil {
		list.Next = mark(next)
	}
	return list, err
}

// oneOperation is the data of the page of an operation.
type oneOperation struct {
	*record.Operation
	Doubts      []doubt // calls without a recorded outcome
	Timeline    []record.Event
	More        int      // the number of steps that are not shown
	Undos, Kept []string // steps whose undo is still to run, and done steps that keep their effect
	Preview     []string // what Cancel would do; empty if the operation has ended
}

// doubt is a call without a recorded outcome.
type doubt struct {
	record.CallInDoubt
	Step    string // the name of the step for display
	CallKey string // the key that the other side has for the call
}

// longestTimeline is the maximum number of entries of a timeline. The page shows the last entries.
const longestTimeline = 500

// readOperation reads an operation and its timeline. previewCancel then adds the parts that package
// operation reads in transactions of its own.
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
	one := oneOperation{Operation: o, Timeline: record.Events(o, steps, sent)}
	for _, d := range record.CallsInDoubt(o, steps) {
		one.Doubts = append(one.Doubts, doubt{d, record.UndoName(d.Name), operation.CallKey(o.ID, d.Kind, d.Name)})
	}
	if n := len(one.Timeline); n > longestTimeline {
		one.Timeline, one.More = one.Timeline[n-longestTimeline:], n-longestTimeline
	}
	return one, nil
}

// previewCancel adds what Cancel would do, and which undos are still to run. It also decrypts the
// last error. If the operation was purged meanwhile, previewCancel returns the data without these
// additions.
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

func openErrors(_ context.Context, s *site, data any) (any, error) {
	list := data.(operations)
	record.OpenErrors(list.Operations, s.Sealer)
	return list, nil
}

// operationID returns an operation id in the format of Postgres. It fails if text is not a UUID.
func operationID(text string) (string, error) {
	var id pgtype.UUID
	if id.Scan(text) != nil {
		return "", problemError{problem{http.StatusNotFound, "That is not an operation id.", "An operation id is a UUID, as in a log or in idem operation list."}}
	}
	return id.String(), nil
}
