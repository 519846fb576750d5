package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/abridge"
	"github.com/idem-go/idem/internal/act"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// What a person does about an operation.

// Status tells how far an operation is.
type Status struct {
	Scope   string // of its key: whose operation it is
	Name    string
	State   string // running, parked, completed, failed (rejected, and undone) or undone (ended in an error)
	Undoing bool

	Cancelled bool
	Kind      string // of Step: call or undo if that was begun, which CallKey asks for, or sleep, await or child if it is waited for; otherwise empty
	Step      string // the one under way, or waited for, as of the last commit; of a parked operation, the one at which it has stopped
	Since     time.Time
	WakeAt    time.Time // when a process looks at it again, if it waits; zero if it waits for a child
	Attempts  int       // how often it was taken up since it last got on
	Reason    string    // why it is parked
	Epoch     int       // grows whenever a process takes it up
	Parent    string    // the id of the operation that has begun it as a child, and awaits it; empty if it is no child

	Steps []StepStatus // that are on record, in their order
}

// StepStatus tells of a step that is on record.
type StepStatus struct {
	Kind       string // tx, call, undo tx, undo, sleep, await, child or changed
	Child      string // the id of the operation that a child is; empty for others
	Name       string
	Outcome    string // done, resolved (as a person says), failed, rolled back, waiting; of an undo: registered or undone; of a call without an answer on record: begun, or not sent
	RecordedAt time.Time
	DueAt      time.Time // when a pause is over, or an Await is given up; zero for others
}

// Show returns the status of an operation. The times are those of the database's clock.
func Show(ctx context.Context, pool *pgxpool.Pool, id string) (Status, error) {
	id, err := parsedID(id)
	if err != nil {
		return Status{}, err
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	s := store.ShowOperation{OperationID: id}
	steps := store.ListSteps{OperationID: id}
	if err := engine.Query(ctx, &s, &steps); err != nil {
		return Status{}, err
	}
	if !s.Found {
		return Status{}, ErrUnknownOperation
	}
	status := Status{
		Scope: s.Scope, Name: s.Name, Epoch: s.Epoch, State: string(s.State), Undoing: s.Undoing, Cancelled: s.Cancelled, Kind: string(s.Kind), Step: s.Step,
		Since: s.Since, WakeAt: s.WakeAt, Attempts: s.Attempts, Reason: s.Reason, Parent: s.Parent,
	}
	if (s.Kind == store.CallStep || s.Kind == store.UndoStep || s.State == store.OperationParked) && !isBegun(steps.Steps, s.Kind, s.Step) {
		status.Kind = ""
	}
	for _, step := range steps.Steps {
		told := StepStatus{
			Kind: string(step.Kind), Name: step.Name, Outcome: string(step.Outcome), RecordedAt: step.RecordedAt, DueAt: step.PauseEnd(),
		}
		if step.Kind == store.ChildStep {
			told.Child = ChildID(id, step.Name)
		}
		status.Steps = append(status.Steps, told)
	}
	return status, nil
}

// isBegun reports whether a step was begun and has no end on record. An undo that is under way is one that is registered.
func isBegun(steps []store.Remembered, kind store.StepKind, name string) bool {
	return slices.ContainsFunc(steps, func(s store.Remembered) bool {
		return s.Kind == kind && s.Name == name && (s.Outcome == store.StepBegun || s.Outcome == store.StepRegistered)
	})
}

// Retry lets a parked operation go on as it is: because the code or the other side has changed. If a call that is Once is what
// has no known outcome, it is parked again: see Resolve.
func Retry(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return revive(ctx, pool, &store.ReviveOperation{OperationID: id}, act.Of(ctx, store.Retry, "running"), nil)
}

// Cancel ends an operation that runs or is parked: it begins no call and no pause any more, waits no longer, settles the call that is
// under way, and is undone. Its key is free after that. A call that is working on it, or waits for it, gets ErrCancelled or
// idem.ErrInProgress, and does not begin the work anew.
//
// A process that works on the operation is not cut off: the call that it is making ends, its value is kept, and the next commit
// finds the cancellation. The function goes on from a call that has happened to the undo that takes it back, through any Tx in
// between. If nothing takes the call back, because another Call, a Sleep, an Await or the end of the function comes first, the
// operation is parked rather than called undone. Then Retry it, with code that registers an undo at that place, if no later step is on record,
// or take the call back by hand, if that is needed, and Cancel it again: that leaves such calls as they are. If the function fails instead, in
// three runs, the operation is undone as far as the function has come. Where that would leave out a step that is on record, it is parked after
// eight runs, which is some minutes, also if it was cancelled again before for another reason; a call that was begun is to be settled then by
// Resolve.
//
// If the operation awaits a Child that has not ended, that is cancelled, too, and the operation is undone when the child has ended.
func Cancel(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return revive(ctx, pool, &store.ReviveOperation{OperationID: id, Cancel: true}, act.Of(ctx, store.Cancel, "to be undone"), nil)
}

// Finding is what a person has found out about a call: Happened, NotHappened or Refused.
type Finding struct {
	happened bool
	value    any
	refused  error
	epoch    int    // in which it was found; 0 if it is not given
	step     string // that it is about; empty: the first one in doubt
}

// NotHappened says that the call was not made, and can not be any more: the operation makes it, or takes whatever step its code asks
// for at that place.
var NotHappened = Finding{}

// Happened says that the call was made, and what it has returned, which is stored as JSON. It has to decode into the type of the Call: the
// operation is parked again if it does not, and Resolve takes another one. For an Undo the value is nil.
func Happened(value any) Finding { return Finding{happened: true, value: value} }

// Refused says that the other side has refused the call, and will not make it any more: the function is given err as one that is Final.
// It finds in it what WithErrors says of errors, those that are named there only by the Resolve of the Definition. An Undo cannot be refused:
// it has to be done, and parks until it is.
func Refused(err error) Finding {
	if err == nil {
		err = errors.New("refused")
	}
	return Finding{happened: true, refused: Final(err)}
}

// As returns the finding as one about the operation as s shows it: Resolve refuses it, with ErrNotParked, if a process has taken
// the operation up since, and it may be at another call by now.
func (f Finding) As(s Status) Finding {
	f.epoch = s.Epoch
	return f
}

// Of returns the finding as one about the step of that name. Where several Calls were made at the same time and more than one is in doubt,
// Resolve takes it for one about the first of them otherwise. It is ErrNotParked if no step of that name is in doubt.
func (f Finding) Of(step string) Finding {
	f.step = step
	return f
}

// Resolve says the outcome of the call, or of the undo, that was begun and has no outcome on record, and lets the operation go on
// from there. It is ErrNotParked if there is none: what is on record stays as it is. If several calls are in doubt it is about one of
// them, and the operation may be parked again for the next. Of the options only idem.WithSealer matters. It
// is for definitions whose codec is JSON; see the Resolve of a Definition for others.
func Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	return resolve(ctx, pool, id, finding, &definition{codec: jsonCodec{}, known: everywhere}, opts)
}

// Resolve says the outcome of the call that has parked an operation of this definition, as the function Resolve does. The value is encoded
// by the codec of the definition, and an error of Refused is what it is if WithErrors names it. For an operation of another definition it
// returns ErrUnknownOperation.
func (d *Definition[In]) Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	if d.err != nil {
		return d.err
	}
	return resolve(ctx, pool, id, finding, &d.definition, opts)
}

// resolve records a finding. A definition without a name is one that is not known.
func resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, d *definition, opts []idem.Option) error {
	sealer, err := door.Sealer(opts)
	if err != nil {
		return err
	}
	request := &store.ReviveOperation{OperationID: id, Unknown: true, Forget: !finding.happened, Epoch: finding.epoch}
	return revive(ctx, pool, request, act.Of(ctx, store.Resolve, finding.outcome()), func(show *store.ShowOperation, begun []store.Step) (txn.Request, error) {
		if d.name != "" && d.name != show.Name {
			return nil, fmt.Errorf("%w: it is an operation %q, not %q", ErrUnknownOperation, show.Name, d.name)
		}
		if err := finding.choose(request, begun); err != nil {
			return nil, err
		}
		if !finding.happened && len(begun) == 0 {
			return nil, nil
		}
		s, err := finding.recorded(request, d)
		if err != nil {
			return nil, err
		}
		s.Value, err = seal(sealer, s.Value, store.BoundStep(request.OperationID, &s))
		return &store.RecordStep{OperationID: request.OperationID, Step: s}, err
	})
}

// outcome is what is put on record of the finding.
func (f *Finding) outcome() string {
	switch {
	case f.refused != nil:
		return "refused"
	case f.happened:
		return "happened"
	}
	return "not happened"
}

// choose makes the request one about the step that the finding is about. Begun are the calls in doubt that were begun together.
func (f *Finding) choose(r *store.ReviveOperation, begun []store.Step) error {
	if len(begun) == 0 && (f.step == "" || f.step == r.Step) {
		return nil
	}
	for i := range begun {
		if f.step == "" || f.step == begun[i].Name {
			r.Seq, r.Kind, r.Step = begun[i].Seq, begun[i].Kind, begun[i].Name
			return nil
		}
	}
	return fmt.Errorf("%w: no step %.200q is in doubt", ErrNotParked, f.step)
}

// recorded is what is recorded of a finding. A call that was begun together with others keeps its place if it has not happened.
func (f *Finding) recorded(r *store.ReviveOperation, d *definition) (s store.Step, err error) {
	s = store.Step{Seq: r.Seq, Kind: r.Kind, Name: r.Step, Outcome: store.StepDone}
	switch {
	case !f.happened:
		s.Outcome = store.StepNotSent
		return s, nil
	case s.Kind == store.UndoStep && f.refused != nil:
		return s, fmt.Errorf("%w: an undo cannot be refused", ErrNotParked)
	case s.Kind == store.UndoStep:
		s.Outcome = store.StepUndone
		return s, nil
	case f.refused != nil:
		s.Outcome, s.Value = store.StepFailed, encodeFailure(d.known, f.refused, nil)
		return s, nil
	}
	s.Outcome = store.StepResolved
	if s.Value, err = d.codec.Encode(f.value); err != nil {
		return s, fmt.Errorf("operation: a value of type %T cannot be encoded: %w", f.value, err)
	}
	return s, nil
}

// revive lets an operation go on, together with what is recorded for it and of the person who wants it.
func revive(ctx context.Context, pool *pgxpool.Pool, r *store.ReviveOperation, note store.NoteAct,
	record func(*store.ShowOperation, []store.Step) (txn.Request, error),
) (err error) {
	if r.OperationID, err = parsedID(r.OperationID); err != nil {
		return err
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	show := store.ShowOperation{OperationID: r.OperationID}
	begun := store.BegunCalls{OperationID: r.OperationID}
	tx, err := engine.Open(ctx, r, &show, &begun) // behind the lock on the row of the operation
	if err != nil {
		return err
	}
	defer tx.Close()
	switch {
	case !show.Found:
		return ErrUnknownOperation
	case !r.Revived:
		return fmt.Errorf("%w: %s", ErrNotParked, whyNotRevived(r, &show))
	}
	var recorded []txn.Request
	if record != nil {
		step, err := record(&show, begun.Calls)
		if err != nil {
			return err
		}
		if step != nil {
			recorded = append(recorded, step)
		}
	}
	note.OperationID, note.Step, note.Scope, note.Key = r.OperationID, r.Step, show.Scope, abridge.Key(r.Key)
	return hint(tx.Commit(ctx, append(recorded, &note)...))
}

// hint adds to an error of the database what its reader can do about it.
func hint(err error) error {
	if txn.HasCode(err, "42501") {
		return fmt.Errorf("operation: nothing was changed: the role needs INSERT on idem.audit, where acts are put on record, and docs/operate.md has the rest: %w", err)
	}
	return err
}

// whyNotRevived tells why an operation that is there was left as it is.
func whyNotRevived(r *store.ReviveOperation, show *store.ShowOperation) string {
	switch {
	case show.State != store.OperationParked:
		return "it is " + string(show.State)
	case r.Epoch != 0 && r.Epoch != show.Epoch:
		return "a process has taken it up since it was looked at"
	}
	return "it is at no call or undo that was begun and has no outcome on record"
}

func parsedID(id string) (string, error) {
	var parsed pgtype.UUID
	if parsed.Scan(id) != nil {
		return "", ErrUnknownOperation
	}
	return parsed.String(), nil
}
