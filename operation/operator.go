package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/txn"
)

// State is how far an operation is.
type State string

// The states of an operation.
const (
	StateRunning   = State(db.OperationRunning)
	StateParked    = State(db.OperationParked)    // a person must decide: see Status.Reason
	StateCompleted = State(db.OperationCompleted) // answered
	StateFailed    = State(db.OperationFailed)    // rejected, and undone
	StateUndone    = State(db.OperationUndone)    // ended in an error or canceled, and undone; its key is free
)

// Status is the state of an operation.
type Status struct {
	Scope    string // of its key: whose operation it is
	Name     string
	State    State
	Undoing  bool // it is decided that the operation is undone
	Canceled bool

	Kind     string // of Step: call or undo if that was begun, for CallKey; sleep, await or child if it is waited for; otherwise empty
	Step     string // the one in progress, or waited for, as of the last commit; of a parked operation, the one at which it has stopped
	Since    time.Time
	WakeAt   time.Time // when a process looks at it again, if it waits; zero if it waits for a child
	Attempts int       // how often a process has taken it over since its last progress

	Reason     Reason     // why it is parked
	ReasonText string     // the same as a sentence
	LastError  *StepError // nil if there was none since its last progress
	Undos      []string   // the steps whose undos are still to run, in that order, once the operation is being undone
	Kept       []string   // the steps that are done and have no undo, once the operation is being undone or is undone

	Epoch  int    // grows whenever a process takes it up
	Parent string // the id of the operation that awaits it as a child; empty if it is no child
	Steps  []StepStatus
}

// StepError is the last error of a call, an undo, or the function of an operation.
type StepError struct {
	Step    string // empty if the function has returned it
	Attempt int
	Text    string // up to 4 KiB; "sealed" if Show cannot open it
	At      time.Time
	NextAt  time.Time // of the next attempt; zero if there is none
}

// StepStatus is the state of a recorded step.
type StepStatus struct {
	Kind       string // tx, call, undo, sleep, await, child or changed
	Name       string // of an undo: that of its step
	Index      int    // of an undo: its position among the undos of its step, from 0
	Child      string // the id of the operation that a child is; empty for others
	Outcome    string // done, resolved (as a person says), failed, rolled back, waiting; of a call without a recorded outcome: begun, or not sent
	Undos      int    // how many undos the step has
	RecordedAt time.Time
	DueAt      time.Time // when a pause is over, or an Await times out; zero for others
}

// Show returns the status of an operation. The times are those of the database's clock. Of the
// options only idem.WithSealer matters: it opens the last error.
func Show(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) (Status, error) {
	id, err := parsedID(id)
	if err != nil {
		return Status{}, err
	}
	sealer, err := idemCalls.Sealer(opts)
	if err != nil {
		return Status{}, err
	}
	s, steps := db.ShowOperation{OperationID: id}, db.ListSteps{OperationID: id}
	if err := engineOf(pool).Query(ctx, &s, &steps); err != nil {
		return Status{}, err
	}
	if !s.Found {
		return Status{}, ErrUnknownOperation
	}
	status := Status{
		Scope: s.Scope, Name: s.Name, Epoch: s.Epoch, State: State(s.State), Undoing: s.Undoing, Canceled: s.Canceled,
		Since: s.Since, WakeAt: s.WaitsUntil(), Attempts: s.Attempts, Reason: Reason(s.Reason), ReasonText: s.ReasonText, Parent: s.Parent,
	}
	status.Kind, status.Step = underWay(&s, steps.Rows)
	status.LastError = lastErrorOf(&s, sealer)
	if s.Undoing || s.Canceled {
		status.Undos, status.Kept = undoPlan(steps.Rows)
	}
	switch status.State {
	case StateCompleted:
		status.Undos, status.Kept = nil, nil
	case StateFailed, StateUndone: // what was not undone WithoutCode stays
		for _, step := range slices.Backward(status.Undos) {
			if !slices.Contains(status.Kept, step) {
				status.Kept = append(status.Kept, step)
			}
		}
		status.Undos = nil
	}
	for i := range steps.Rows {
		if steps.Rows[i].Kind != db.EndStep {
			status.Steps = append(status.Steps, stepStatus(id, &steps.Rows[i]))
		}
	}
	return status, nil
}

// underWay returns the kind and the name of the step at which an operation is. The kind is empty
// unless the step has no outcome yet.
func underWay(s *db.ShowOperation, steps []db.Step) (kind, step string) {
	step, _ = splitUndoName(s.Step)
	if s.State == db.OperationParked {
		step = s.ReasonStep
	}
	for i := range steps {
		if of, _ := splitUndoName(steps[i].Name); of == step && steps[i].Outcome == db.StepBegun {
			return string(steps[i].Kind), step
		}
	}
	if s.State == db.OperationRunning && s.Kind != db.CallStep && s.Kind != db.UndoStep {
		kind = string(s.Kind)
	}
	return kind, step
}

// lastErrorOf returns the last error. If its text cannot be opened, the text says so.
func lastErrorOf(s *db.ShowOperation, sealer db.Sealer) *StepError {
	if s.Error.Attempt == 0 {
		return nil
	}
	e := &StepError{Step: s.Error.Step, Attempt: s.Error.Attempt, Text: "sealed", At: s.ErrorAt, NextAt: s.ErrorNextAt}
	if text, err := open(sealer, s.Error.Text, db.BoundError(s.OperationID, s.Error.Step)); err == nil {
		e.Text = string(text)
	}
	return e
}

func stepStatus(id string, s *db.Step) StepStatus {
	status := StepStatus{Kind: string(s.Kind), Name: s.Name, Outcome: string(s.Outcome), Undos: s.Undos, RecordedAt: s.RecordedAt, DueAt: s.PauseEnd()}
	switch s.Kind {
	case db.ChildStep:
		status.Child = ChildID(id, s.Name)
	case db.UndoStep:
		status.Name, status.Index = splitUndoName(s.Name)
	}
	return status
}

// Retry lets a parked operation go on: because the code or the other side has changed. A call in
// doubt is repeated if its policy is Keyed. If it is Once, the operation parks again: see Resolve.
func Retry(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return revive(ctx, pool, &db.ReviveOperation{OperationID: id}, audit.Note(ctx, db.Retry, "running"), nil)
}

// CancelOption changes a Cancel.
type CancelOption func(*db.CancelOperation)

// WithoutCalling has Cancel repeat no call: a Keyed call in doubt parks the operation with
// ReasonCallInDoubt, for Resolve.
func WithoutCalling() CancelOption {
	return func(c *db.CancelOperation) { c.WithoutCalling = true }
}

// WithoutCode has Cancel end the operation by its recorded steps alone, where its code has changed
// or fails: steps that the function does not ask for any more are not undone, and Status.Kept lists
// them.
func WithoutCode() CancelOption {
	return func(c *db.CancelOperation) { c.WithoutCode = true }
}

// Cancel ends an operation that runs or is parked: no step is begun any more, and what is done is
// undone. Its key is free after that, also if its function rejects meanwhile. A call that waits for
// it gets ErrCanceled. Canceling an operation again changes nothing and is no error, unless the
// options differ.
//
// Cancel takes effect at the next step or attempt; a call that is being made is not cut off. A call
// of which no attempt was sent is never sent. An Asked call in doubt is asked about. A Keyed call
// in doubt is repeated under its key if its step has an undo, which then runs. Any other call in
// doubt parks the operation with ReasonCallInDoubt: see [Resolve]. A Child in progress is canceled
// and awaited. The function is run up to its last recorded step, so that the undos are known. If it
// fails before that, in eight runs, the operation parks with ReasonFunctionFailed. PreviewCancel
// says what Cancel would do.
func Cancel(ctx context.Context, pool *pgxpool.Pool, id string, opts ...CancelOption) (err error) {
	c := &db.CancelOperation{}
	for _, opt := range opts {
		opt(c)
	}
	if c.OperationID, err = parsedID(id); err != nil {
		return err
	}
	show := db.ShowOperation{OperationID: c.OperationID}
	tx, err := engineOf(pool).Open(ctx, c, &show) // behind the lock on the row of the operation
	if err != nil {
		return err
	}
	defer tx.Close()
	switch {
	case !show.Found:
		return ErrUnknownOperation
	case c.Found:
	case show.Canceled && (show.State == db.OperationUndone || show.State == db.OperationRunning || show.State == db.OperationParked):
		return nil
	default:
		return fmt.Errorf("%w: it is %s", ErrNotParked, show.State)
	}
	outcome := "to be undone"
	if c.WithoutCalling {
		outcome += ", without calling"
	}
	if c.WithoutCode {
		outcome += ", without code"
	}
	note := audit.Note(ctx, db.Cancel, outcome)
	note.OperationID, note.Step, note.Scope, note.Key = c.OperationID, c.Step, show.Scope, display.Key(c.Key)
	return hint(tx.Commit(ctx, &note))
}

// CancelPreview is what Cancel would do, by the record of the operation. A process that works on it
// may have come further by then.
type CancelPreview struct {
	InDoubt []string // the steps whose calls are in doubt
	Asks    bool     // an Asked call in doubt is asked about; Undos and Kept count it as done
	Repeats bool     // a Keyed call in doubt is repeated; Undos counts it as done
	Parks   Reason   // why the operation parks before anything is undone; empty if it does not
	Undos   []string // the steps whose undos run, in that order
	Kept    []string // the steps that are done and stay
}

// PreviewCancel returns what Cancel with these options would do, and changes nothing.
func PreviewCancel(ctx context.Context, pool *pgxpool.Pool, id string, opts ...CancelOption) (CancelPreview, error) {
	id, err := parsedID(id)
	if err != nil {
		return CancelPreview{}, err
	}
	var c db.CancelOperation
	for _, opt := range opts {
		opt(&c)
	}
	show, steps := db.ShowOperation{OperationID: id}, db.ListSteps{OperationID: id}
	if err := engineOf(pool).Query(ctx, &show, &steps); err != nil {
		return CancelPreview{}, err
	}
	switch {
	case !show.Found:
		return CancelPreview{}, ErrUnknownOperation
	case show.State != db.OperationRunning && show.State != db.OperationParked:
		return CancelPreview{}, fmt.Errorf("%w: it is %s", ErrNotParked, show.State)
	}
	var p CancelPreview
	j := journal{canceled: true, withoutCalling: c.WithoutCalling}
	for i := range steps.Rows {
		s := &steps.Rows[i]
		if s.Outcome != db.StepBegun || s.Kind != db.CallStep {
			continue
		}
		p.InDoubt = append(p.InDoubt, s.Name)
		policy, begun := storedPolicy(s.Policy), s.RecordedAt
		if !s.DueAt.IsZero() {
			begun = s.DueAt
		}
		v := decideDoubt(&j, request{policy: policy.stored(), undos: s.Undos}, &db.Step{Name: s.Name})
		switch {
		case v.do == park, policy.window > 0 && show.LoadedAt.Sub(begun) > policy.window:
			p.Parks = ReasonCallInDoubt
			continue
		case policy.find != nil:
			p.Asks = true
		default:
			p.Repeats = true
		}
		s.Outcome = db.StepDone
	}
	p.Undos, p.Kept = undoPlan(steps.Rows)
	return p, nil
}

// CallKey returns the key by which the other side knows a call, for a person who has to ask there.
// kind is "call", or "undo" for the undo of the step. index is the StepStatus.Index of an undo,
// where a step has several.
func CallKey(operationID, kind, step string, index ...int) string {
	if kind == string(db.UndoStep) && len(index) > 0 {
		step = undoName(step, index[0])
	}
	return derivedKey(operationID, db.StepKind(kind), step)
}

// Finding is the outcome of a call in doubt, as a person states it: Happened, NotHappened or Refused.
type Finding struct {
	happened bool
	value    any
	refused  error
	epoch    int    // in which it was found; 0 if that is not given
	step     string // that it is about; empty: the first one in doubt
}

// NotHappened says that the call has not happened and will not be made: the function gets a Final
// error that is ErrNotHappened. To have the call made again, Retry the operation instead. An undo
// is made again: it must be done.
var NotHappened = Finding{}

// Happened says that the call has happened, and what it has returned, which is stored as JSON. The
// value must decode into the type of the Call: the operation parks again if it does not, and
// Resolve takes another one. For an undo the value is nil.
func Happened(value any) Finding { return Finding{happened: true, value: value} }

// Refused says that the other side has refused the call, and will not make it any more: the
// function gets err as a Final, or as idem.Reject if it is that. It finds in err what WithErrors
// says of errors, those that are named there only by the Resolve of the Definition. An undo cannot
// be refused: the operation stays parked until it is done.
func Refused(err error) Finding {
	if err == nil {
		err = errors.New("refused")
	}
	return Finding{refused: Final(err)}
}

// As returns the finding as one about the operation as s shows it: Resolve refuses it, with
// ErrNotParked, if a process has taken the operation up since.
func (f Finding) As(s Status) Finding {
	f.epoch = s.Epoch
	return f
}

// Of returns the finding as one about the step of that name, where several calls are in doubt.
// Resolve refuses it, with ErrNotParked, if no step of that name is in doubt.
func (f Finding) Of(step string) Finding {
	f.step = step
	return f
}

// Resolve says the outcome of a call in doubt, or of an undo in doubt, and lets the operation go on
// from there. It is ErrNotParked if there is none. If several are in doubt it is about the first of
// them, unless the finding names one, and the operation may park again for the next. Of the options
// only idem.WithSealer matters. It is for definitions whose codec is JSON; see the Resolve of a
// Definition for others.
func Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	return resolve(ctx, pool, id, finding, &definition{codec: jsonCodec{}, knownErrors: everywhere}, opts)
}

// Resolve says the outcome of a call in doubt of an operation of this definition, as the function
// Resolve does. The value is encoded by the codec of the definition, and an error of Refused is
// what it is if WithErrors names it. For an operation of another definition it returns
// ErrUnknownOperation.
func (d *Definition[In]) Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	if d.err != nil {
		return d.err
	}
	return resolve(ctx, pool, id, finding, &d.definition, opts)
}

// resolve records a finding. A definition without a name is one that is not known.
func resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, d *definition, opts []idem.Option) error {
	sealer, err := idemCalls.Sealer(opts)
	if err != nil {
		return err
	}
	request := &db.ReviveOperation{OperationID: id, FromEpoch: finding.epoch}
	return revive(ctx, pool, request, audit.Note(ctx, db.Resolve, finding.outcome()), func(show *db.ShowOperation, inDoubt []db.InDoubt) (txn.Request, string, error) {
		if d.name != "" && d.name != show.Name {
			return nil, "", fmt.Errorf("%w: it is an operation %q, not %q", ErrUnknownOperation, show.Name, d.name)
		}
		call, err := finding.choose(inDoubt)
		if err != nil {
			return nil, "", err
		}
		s, err := finding.recorded(&call.Step, d)
		if err != nil {
			return nil, "", err
		}
		if s == nil { // an undo that is made again
			return nil, call.Name, nil
		}
		s.Value, err = seal(sealer, s.Value, db.BoundStep(request.OperationID, s))
		return &db.RecordStep{OperationID: request.OperationID, Step: *s}, call.Name, err
	})
}

// outcome is what the audit says of the finding.
func (f *Finding) outcome() string {
	switch {
	case f.refused != nil:
		return "refused"
	case f.happened:
		return "happened"
	}
	return "not happened"
}

// choose returns the call that the finding is about.
func (f *Finding) choose(inDoubt []db.InDoubt) (*db.InDoubt, error) {
	for i := range inDoubt {
		if of, _ := splitUndoName(inDoubt[i].Name); f.step == "" || f.step == of || f.step == inDoubt[i].Name {
			return &inDoubt[i], nil
		}
	}
	if f.step == "" {
		return nil, fmt.Errorf("%w: no call is in doubt", ErrNotParked)
	}
	return nil, fmt.Errorf("%w: no step %.200q is in doubt", ErrNotParked, f.step)
}

// recorded is what is recorded of a finding, nil for an undo that is made again.
func (f *Finding) recorded(call *db.Step, d *definition) (*db.Step, error) {
	s := &db.Step{Seq: call.Seq, Kind: call.Kind, Name: call.Name, Undos: call.Undos, Outcome: db.StepDone}
	isUndo := s.Kind == db.UndoStep
	switch {
	case isUndo && f.refused != nil:
		return nil, fmt.Errorf("%w: an undo cannot be refused", ErrNotParked)
	case isUndo && !f.happened:
		return nil, nil
	case isUndo:
		s.Policy = call.Policy
		return s, nil
	case !f.happened && f.refused == nil:
		s.Outcome, s.Value = db.StepFailed, d.knownErrors.Encode(Final(ErrNotHappened))
		return s, nil
	case f.refused != nil:
		s.Outcome, s.Value = db.StepFailed, d.knownErrors.Encode(f.refused)
		return s, nil
	}
	s.Outcome = db.StepResolved
	var err error
	if s.Value, err = d.codec.Encode(f.value); err != nil {
		return nil, fmt.Errorf("operation: a value of type %T cannot be encoded: %w", f.value, err)
	}
	return s, nil
}

// revive lets a parked operation go on, together with what is recorded for it and of the person who
// wants it.
func revive(ctx context.Context, pool *pgxpool.Pool, r *db.ReviveOperation, note db.NoteAct,
	record func(*db.ShowOperation, []db.InDoubt) (row txn.Request, step string, err error),
) (err error) {
	if r.OperationID, err = parsedID(r.OperationID); err != nil {
		return err
	}
	show, inDoubt := db.ShowOperation{OperationID: r.OperationID}, db.CallsInDoubt{OperationID: r.OperationID}
	r.Forget = record != nil
	tx, err := engineOf(pool).Open(ctx, &inDoubt, &show, r)
	if err != nil {
		return err
	}
	defer tx.Close()
	switch {
	case !show.Found:
		return ErrUnknownOperation
	case !r.Found && show.State != db.OperationParked:
		return fmt.Errorf("%w: it is %s", ErrNotParked, show.State)
	case !r.Found, r.Epoch-1 != show.Epoch:
		return fmt.Errorf("%w: a process has taken it up since it was looked at", ErrNotParked)
	}
	var rows []txn.Request
	note.Step = show.ReasonStep
	if record != nil {
		row, step, err := record(&show, inDoubt.Rows)
		if err != nil {
			return err
		}
		if note.Step = step; row != nil {
			rows = append(rows, row)
		}
	}
	note.OperationID, note.Scope, note.Key = r.OperationID, show.Scope, display.Key(r.Key)
	return hint(tx.Commit(ctx, append(rows, &note)...))
}

// hint adds to an error of the database what its reader can do about it.
func hint(err error) error {
	if txn.HasCode(err, "42501") {
		return fmt.Errorf("operation: nothing was changed: the role needs INSERT on idem.audit, where acts are recorded, and docs/operate.md has the rest: %w", err)
	}
	return err
}
