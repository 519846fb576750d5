package operation

import (
	"cmp"
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

// State is the state of an operation as a whole.
type State string

// The states of an operation.
const (
	StateRunning   = State(db.OperationRunning)
	StateParked    = State(db.OperationParked)    // a person must decide: see Status.Reason
	StateCompleted = State(db.OperationCompleted) // has ended with a response
	StateFailed    = State(db.OperationFailed)    // has ended in idem.Reject, and its steps are undone
	StateUndone    = State(db.OperationUndone)    // was canceled or has ended in a Final error; its steps are undone, and its key is free
)

// Status is the state of an operation, as Show returns it.
type Status struct {
	Scope    string // the scope of the key
	Name     string // the name of the definition
	State    State
	Undoing  bool // the decision to undo the operation is recorded
	Canceled bool

	// Step is the step that is in progress or waits, as of the last commit. For a parked operation
	// it is the step at which the operation is parked. Kind is "call" or "undo", as CallKey takes
	// it, if the call or the undo has begun. Kind is "sleep", "await" or "child" if the operation
	// waits for the step. Otherwise Kind is empty.
	Kind     string
	Step     string
	Since    time.Time // when the step was begun
	WakeAt   time.Time // when the operation is due, if it waits; zero if it waits for a child
	Attempts int       // how often the operation was claimed since its last progress

	Reason     Reason     // why the operation is parked; empty if it is not
	ReasonText string     // the reason as a sentence
	LastError  *StepError // nil if there was no error since the last progress
	Undos      []string   // the steps whose undos are still to run, in the order of running; nil unless the operation is canceled or being undone
	Kept       []string   // the done Tx, Call and Child steps whose effect stays, because no undo runs; nil unless the operation is canceled or being undone

	Epoch  int    // grows whenever a process claims the operation
	Parent string // the id of the operation that awaits this one as a child; empty if this one is no child
	Steps  []StepStatus
}

// StepError is the last error of a call, an undo, or the function of an operation.
type StepError struct {
	Step    string // empty for an error of the function
	Attempt int
	Text    string // the text of the error, up to 4 KiB; "sealed" if Show cannot decrypt it
	At      time.Time
	NextAt  time.Time // when the next attempt is due; zero if no attempt is planned
}

// StepStatus is the state of a recorded step.
type StepStatus struct {
	Kind       string // tx, call, undo, sleep, await, child or changed
	Name       string // an undo has the name of its step
	Index      int    // for an undo: its position among the undos of its step, from 0
	Child      string // for a child: the id of the child operation
	Outcome    string // done, resolved (done, as a person has stated), failed, rolled back or waiting; for a call without an outcome: begun or not sent
	Undos      int    // the number of undos of the step
	RecordedAt time.Time
	DueAt      time.Time // when a Sleep ends or an Await times out; zero for other steps
}

// Show returns the status of an operation. It returns ErrUnknownOperation if no operation has the
// id. An operation that was a single transaction has no record, and is unknown, too. All times are
// by the database's clock. Of the options only idem.WithSealer has an effect: its Sealer decrypts
// the last error.
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
	status.Kind, status.Step = stepInProgress(&s, steps.Rows)
	if s.Error.Attempt > 0 {
		status.LastError = &StepError{Step: s.Error.Step, Attempt: s.Error.Attempt, Text: "sealed", At: s.ErrorAt, NextAt: s.ErrorNextAt}
		if text, err := open(sealer, s.Error.Text, db.BoundError(id, s.Error.Step)); err == nil {
			status.LastError.Text = string(text)
		}
	}
	if s.Undoing || s.Canceled {
		status.Undos, status.Kept = undoPlan(steps.Rows)
	}
	switch status.State {
	case StateCompleted:
		status.Undos, status.Kept = nil, nil
	case StateFailed, StateUndone: // the steps in Undos were not undone, because Cancel was WithoutCode
		for _, step := range slices.Backward(status.Undos) {
			if !slices.Contains(status.Kept, step) {
				status.Kept = append(status.Kept, step)
			}
		}
		status.Undos = nil
	}
	status.Steps = stepStatuses(id, steps.Rows, status.State)
	return status, nil
}

func stepStatuses(operationID string, rows []db.Step, state State) (steps []StepStatus) {
	for i := range rows {
		r := &rows[i]
		step := StepStatus{Kind: string(r.Kind), Name: r.Name, Outcome: string(r.Outcome), Undos: r.Undos, RecordedAt: r.RecordedAt, DueAt: r.PauseEnd()}
		switch r.Kind {
		case db.EndStep:
			continue
		case db.SleepStep: // the row of a Sleep does not change when the pause ends
			if i+1 < len(rows) && rows[i+1].Kind != db.UndoStep || state == StateCompleted {
				step.Outcome = string(db.StepDone)
			}
		case db.ChildStep:
			step.Child = ChildID(operationID, r.Name)
		case db.UndoStep:
			step.Name, step.Index = splitUndoName(r.Name)
		}
		steps = append(steps, step)
	}
	return steps
}

// stepInProgress returns the kind and the name of the step at which the operation is. The kind is
// empty if the step has an outcome.
func stepInProgress(s *db.ShowOperation, steps []db.Step) (kind, step string) {
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

// Retry resumes a parked operation, after its code or the other system has changed. If a Keyed call
// is in doubt, the call is repeated. If a Once call is in doubt, the operation parks again: use
// Resolve.
func Retry(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return revive(ctx, pool, &db.ReviveOperation{OperationID: id}, audit.Note(ctx, db.Retry, "running"), nil)
}

// CancelOption is an option of Cancel, CancelAll and PreviewCancel.
type CancelOption func(*db.CancelOperation)

// WithoutCalling forbids a canceled operation to repeat a call. If a Keyed call is in doubt, the
// operation parks with ReasonCallInDoubt, and a person has to Resolve the call.
func WithoutCalling() CancelOption {
	return func(c *db.CancelOperation) { c.WithoutCalling = true }
}

// WithoutCode lets Cancel end an operation whose code has changed, fails, or cannot decode the
// input. Recorded steps that the function no longer asks for are not undone, and Status.Kept lists
// them.
func WithoutCode() CancelOption {
	return func(c *db.CancelOperation) { c.WithoutCode = true }
}

// Cancel ends an operation that is running or parked. The operation begins no further step, and its
// done steps are undone. Cancel records this and returns. A Worker or the next call with the key
// runs the undos, even if the operation was in a pause that has not ended. Then the key is free,
// even if the function returns a rejection meanwhile. A call that waits for the operation or runs
// the undos gets ErrCanceled. It is no error to cancel an operation again. Another Cancel has an
// effect only if its options differ.
//
// Cancel takes effect at the next step or attempt. It does not interrupt a call in progress.
//
//   - If no attempt at a call was sent, the call is never sent.
//   - If an Asked call is in doubt, the other system is asked.
//   - If a Keyed call is in doubt and its step has an undo, the call is repeated under its key.
//     Then the undo runs.
//   - At any other call in doubt the operation parks with ReasonCallInDoubt: see [Resolve].
//   - A Child in progress is canceled, and its end is awaited.
//
// To find the undos, the function runs again up to its last recorded step. If eight runs fail
// before that step, the operation parks with ReasonFunctionFailed. PreviewCancel returns what
// Cancel would do.
func Cancel(ctx context.Context, pool *pgxpool.Pool, id string, opts ...CancelOption) (err error) {
	c := &db.CancelOperation{}
	for _, opt := range opts {
		opt(c)
	}
	if c.OperationID, err = parsedID(id); err != nil {
		return err
	}
	show := db.ShowOperation{OperationID: c.OperationID}
	tx, err := engineOf(pool).Open(ctx, c, &show) // c locks the row before show reads it
	if err != nil {
		return err
	}
	defer tx.Close()
	switch {
	case !show.Found:
		return ErrUnknownOperation
	case c.Found:
	case show.Canceled && show.State == db.OperationUndone:
		return nil
	case show.Canceled && (show.State == db.OperationRunning || show.State == db.OperationParked):
		tx.Close()
		return cancelChildren(ctx, pool, c.OperationID, true, opts)
	default:
		return fmt.Errorf("%w: the operation is %s", ErrNotParked, show.State)
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
	if err := tx.Commit(ctx, &note); err != nil {
		return hint(err)
	}
	return cancelChildren(ctx, pool, c.OperationID, false, opts)
}

// cancelChildren cancels the children of a canceled operation that are in progress. A run of the
// parent cancels a child, too, when it reaches the Child step, but the run may park before that
// step. If Cancel is repeated, children that are canceled already keep their options.
func cancelChildren(ctx context.Context, pool *pgxpool.Pool, parent string, repeated bool, opts []CancelOption) error {
	steps := db.ListSteps{OperationID: parent}
	if err := engineOf(pool).Query(ctx, &steps); err != nil {
		return err
	}
	for i := range steps.Rows {
		s := &steps.Rows[i]
		if s.Kind != db.ChildStep || s.Outcome != db.StepWaiting {
			continue
		}
		child := db.ShowOperation{OperationID: ChildID(parent, s.Name)}
		if repeated {
			if err := engineOf(pool).Query(ctx, &child); err != nil {
				return err
			}
		}
		var err error
		if child.Canceled {
			err = cancelChildren(ctx, pool, child.OperationID, true, opts)
		} else {
			err = Cancel(ctx, pool, child.OperationID, opts...)
		}
		if err != nil && !errors.Is(err, ErrNotParked) && !errors.Is(err, ErrUnknownOperation) {
			return err
		}
	}
	return nil
}

// CancelPreview is what Cancel would do, according to the record of the operation. If a process
// works on the operation, it may make progress before the Cancel.
type CancelPreview struct {
	InDoubt []string // the steps whose calls or undos are in doubt
	Asks    bool     // the other system is asked about a call or undo in doubt; Undos and Kept count the call as done
	Repeats bool     // a Keyed call or undo in doubt is repeated; Undos counts the call as done
	Parks   Reason   // why the operation parks, or stays parked; empty if it does not
	Undos   []string // the steps whose undos run, in that order
	Kept    []string // the done steps whose effect stays, because no undo runs
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
		return CancelPreview{}, fmt.Errorf("%w: the operation is %s", ErrNotParked, show.State)
	}
	return previewCancel(&show, steps.Rows, &c), nil
}

// previewCancel returns what the request c would do to an operation that is running or parked. It
// marks a call in doubt as done in rows if Cancel would ask about the call or repeat it.
func previewCancel(show *db.ShowOperation, rows []db.Step, c *db.CancelOperation) (p CancelPreview) {
	staysParked := show.State == db.OperationParked && !changes(show, c)
	for i := range rows {
		s := &rows[i]
		name, _ := splitUndoName(s.Name)
		switch {
		case s.Outcome != db.StepBegun || s.Kind != db.CallStep && s.Kind != db.UndoStep:
		case staysParked:
			p.InDoubt = append(p.InDoubt, name)
		default:
			p.settle(s, c.WithoutCalling, show.LoadedAt)
		}
	}
	if staysParked || parksAgain(show, rows, c.WithoutCode || show.WithoutCode) {
		p.Parks = Reason(show.Reason)
	}
	p.Undos, p.Kept = undoPlan(rows)
	return p
}

// parksAgain reports whether a parked operation would park for the same reason after Cancel, if its
// code stays the same.
func parksAgain(show *db.ShowOperation, rows []db.Step, withoutCode bool) bool {
	switch Reason(show.Reason) {
	case ReasonCodeChanged, ReasonFunctionFailed:
		return !withoutCode
	case ReasonValueUnreadable:
		sent := func(s db.Step) bool { return s.Outcome != db.StepNotSent }
		return !withoutCode && slices.ContainsFunc(rows, sent)
	}
	return false
}

// changes reports whether Cancel with the options of c would change the operation, which is running
// or parked. The statement CancelOperation has the same condition.
func changes(show *db.ShowOperation, c *db.CancelOperation) bool {
	return !show.Canceled || show.WithoutCalling != c.WithoutCalling || c.WithoutCode && !show.WithoutCode
}

// settle adds to p what Cancel does about s, which is a call or an undo in doubt. If Cancel asks
// about a call or repeats it, settle marks s as done.
func (p *CancelPreview) settle(s *db.Step, withoutCalling bool, now time.Time) {
	name, undos, j := s.Name, s.Undos, journal{canceled: true, withoutCalling: withoutCalling}
	if s.Kind == db.UndoStep { // Cancel does not change how an undo in doubt is settled
		name, _ = splitUndoName(s.Name)
		undos, j.withoutCalling = 1, false
	}
	p.InDoubt = append(p.InDoubt, name)
	window, begun := storedWindow(s.Policy), s.RecordedAt
	if !s.DueAt.IsZero() {
		begun = s.DueAt
	}
	switch {
	case decideDoubt(&j, request{policy: cmp.Or(s.Policy, db.PolicyOnce), undos: undos}, s).do == park, window > 0 && now.Sub(begun) > window:
		p.Parks = ReasonCallInDoubt
		return
	case s.Policy == db.PolicyAsked:
		p.Asks = true
	default:
		p.Repeats = true
	}
	if s.Kind == db.CallStep {
		s.Outcome = db.StepDone
	}
}

// CallKey returns the key of a call, for a person who looks the call up in the other system. kind
// is "call", or "undo" for the undo of the step. If the step has several undos, pass the
// StepStatus.Index of the undo as index.
func CallKey(operationID, kind, step string, index ...int) string {
	if kind == string(db.UndoStep) && len(index) > 0 {
		step = undoName(step, index[0])
	}
	return derivedKey(operationID, db.StepKind(kind), step)
}

// Finding is the outcome of a call in doubt as a person states it: Happened, NotHappened or
// Refused.
type Finding struct {
	happened bool
	value    any
	refused  error
	act      string // the outcome in the audit row; empty: not happened
	epoch    int    // the epoch of the status that was passed to As; 0: any
	step     string // the step that was passed to Of; empty: the first step in doubt
}

// NotHappened states that the call has not happened. The call is then not made any more: the
// function gets ErrNotHappened as a Final error. If the call is to be made again, use Retry
// instead. An undo that has not happened is made again, because the step has to be undone.
var NotHappened = Finding{}

// Happened states that the call has happened and has returned value. The value is stored as JSON,
// and must decode into the type of the Call. If it does not decode, the operation parks again, and
// Resolve accepts another value. For an undo, pass nil.
func Happened(value any) Finding { return Finding{happened: true, value: value, act: "happened"} }

// Refused states that the other system has refused the call and will not make it. The function gets
// err as a Final error, or as a rejection if err is an idem.Reject. Only the stored form of err is
// kept: see WithErrors. The errors that are registered there are known only to the Resolve method
// of the Definition. An undo cannot be refused: the operation stays parked until the undo is done.
func Refused(err error) Finding {
	if err == nil {
		err = errors.New("refused")
	}
	return Finding{refused: Final(err), act: "refused"}
}

// As returns a finding that is valid only while the status s is current. If a process has claimed
// the operation since Show returned s, Resolve returns ErrNotParked.
func (f Finding) As(s Status) Finding {
	f.epoch = s.Epoch
	return f
}

// Of returns a finding about the step of the given name, for an operation with several calls in
// doubt. If the step is not in doubt, Resolve returns ErrNotParked.
func (f Finding) Of(step string) Finding {
	f.step = step
	return f
}

// Resolve records the outcome of a call or an undo in doubt, as a person states it, and resumes the
// operation. If several calls are in doubt, the finding is about the first of them, unless
// Finding.Of has named a step. The operation may then park again at the next call in doubt. If no
// call is in doubt, Resolve returns ErrNotParked. Of the options only idem.WithSealer has an
// effect. If the codec of the definition is not JSON, use the Resolve method of the Definition.
func Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	return resolve(ctx, pool, id, finding, &definition{codec: jsonCodec{}, knownErrors: defaultErrors}, opts)
}

// Resolve does the same as the function Resolve, for an operation of this definition. It encodes
// the value by the codec of the definition, and stores an error of Refused as WithErrors says. For
// an operation of another definition it returns ErrUnknownOperation.
func (d *Definition[In]) Resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, opts ...idem.Option) error {
	if d.err != nil {
		return d.err
	}
	return resolve(ctx, pool, id, finding, &d.definition, opts)
}

// resolve records a finding. If d has no name, the operation may have any definition.
func resolve(ctx context.Context, pool *pgxpool.Pool, id string, finding Finding, d *definition, opts []idem.Option) error {
	sealer, err := idemCalls.Sealer(opts)
	if err != nil {
		return err
	}
	request := &db.ReviveOperation{OperationID: id, FromEpoch: finding.epoch}
	return revive(ctx, pool, request, audit.Note(ctx, db.Resolve, cmp.Or(finding.act, "not happened")), func(show *db.ShowOperation, inDoubt []db.InDoubt) (txn.Request, *db.InDoubt, error) {
		if d.name != "" && d.name != show.Name {
			return nil, nil, fmt.Errorf("%w: the operation belongs to definition %q, not to %q", ErrUnknownOperation, show.Name, d.name)
		}
		call, err := finding.choose(inDoubt)
		if err != nil {
			return nil, nil, err
		}
		s, err := finding.recorded(&call.Step, d)
		if err != nil {
			return nil, nil, err
		}
		if s == nil { // the undo is made again, so no row is written
			return nil, call, nil
		}
		s.Value, err = seal(sealer, s.Value, db.BoundStep(request.OperationID, s))
		return &db.RecordStep{OperationID: request.OperationID, Step: *s}, call, err
	})
}

// choose returns the call in doubt that the finding is about. If there is none, it returns
// ErrNotParked.
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

// recorded returns the row that stores the finding about the call. It returns nil if the call is an
// undo that is to be made again.
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
	case !f.happened:
		s.Outcome, s.Value = db.StepFailed, d.knownErrors.Encode(cmp.Or(f.refused, Final(ErrNotHappened)))
		return s, nil
	}
	s.Outcome = db.StepResolved
	var err error
	if s.Value, err = d.codec.Encode(f.value); err != nil {
		return nil, fmt.Errorf("operation: a value of type %T cannot be encoded: %w", f.value, err)
	}
	return s, nil
}

// revive resumes a parked operation, and writes the audit note in the same transaction. The
// function record, if not nil, chooses one of the calls in doubt, and revive also writes the row
// that record returns.
func revive(ctx context.Context, pool *pgxpool.Pool, r *db.ReviveOperation, note db.NoteAct,
	record func(*db.ShowOperation, []db.InDoubt) (row txn.Request, call *db.InDoubt, err error),
) (err error) {
	if r.OperationID, err = parsedID(r.OperationID); err != nil {
		return err
	}
	show, inDoubt := db.ShowOperation{OperationID: r.OperationID}, db.CallsInDoubt{OperationID: r.OperationID}
	tx, err := engineOf(pool).Open(ctx, &show, &inDoubt)
	if err != nil {
		return err
	}
	defer tx.Close()
	switch {
	case !show.Found:
		return ErrUnknownOperation
	case show.State != db.OperationParked:
		return fmt.Errorf("%w: the operation is %s", ErrNotParked, show.State)
	}
	var rows []txn.Request
	note.Step = show.ReasonStep
	if record != nil {
		row, call, err := record(&show, inDoubt.Rows)
		if err != nil {
			return err
		}
		note.Step, r.Forget = call.Name, !call.HasRow
		if row != nil {
			rows = append(rows, row)
		}
	}
	r.FromEpoch = cmp.Or(r.FromEpoch, show.Epoch) // so that r fails if the operation was claimed since the read
	if err := tx.Ask(ctx, r); err != nil {
		return err
	}
	if !r.Found || r.Epoch-1 != show.Epoch {
		return fmt.Errorf("%w: a process has claimed the operation since Show", ErrNotParked)
	}
	note.OperationID, note.Scope, note.Key = r.OperationID, show.Scope, display.Key(r.Key)
	return hint(tx.Commit(ctx, append(rows, &note)...))
}

// hint returns err. If a privilege is missing, it adds which privilege the role needs.
func hint(err error) error {
	if txn.HasCode(err, "42501") {
		return fmt.Errorf("operation: nothing was changed: the role needs INSERT on idem.audit, where acts are recorded, and docs/operate.md has the rest: %w", err)
	}
	return err
}
