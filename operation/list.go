package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
)

// Filter selects operations. Its zero value selects all of them.
type Filter struct {
	State State         // the state of the operations; empty: any
	Name  string        // the name of the definition; empty: any
	Step  string        // the step that is in progress or waits, or at which the operation is parked; empty: any
	Scope string        // a prefix of the scope
	Older time.Duration // the minimum age, by the database's clock
	After string        // selects only operations whose id is greater than this one; empty: all
}

// Listed is an operation as All returns it. Show returns more details.
type Listed struct {
	ID         string
	Scope      string
	Name       string
	State      State
	Undoing    bool
	Step       string
	Attempts   int
	Reason     Reason // why the operation is parked; empty if it is not parked
	ReasonText string // the reason as a sentence
	CreatedAt  time.Time
	Since      time.Time // when the step was begun
	EndedAt    time.Time // zero if the operation has not ended
}

const listPage = 100 // how many operations All reads in one query

// firstID is less than the id of every operation.
const firstID = "00000000-0000-0000-0000-000000000000"

var states = []State{"", StateRunning, StateParked, StateCompleted, StateFailed, StateUndone}

// All iterates over the operations that f selects, in the order of their ids, which is not the
// order of time. An error ends the iteration. For operations that are running or parked, All uses
// an index. For others, a filter by name, scope or step makes All read all rows after Filter.After.
func All(ctx context.Context, pool *pgxpool.Pool, f Filter) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		query, err := f.query()
		if err == nil && pool == nil {
			err = errNoPool
		}
		for err == nil {
			if err = engineOf(pool).Query(ctx, query); err != nil {
				break
			}
			for _, o := range query.Rows {
				query.AfterOperation = o.OperationID
				if !yield(Listed{
					ID: o.OperationID, Scope: o.Scope, Name: o.Name, State: State(o.State), Undoing: o.Undoing, Step: o.Step, Attempts: o.Attempts,
					Reason: Reason(o.Reason), ReasonText: o.ReasonText, CreatedAt: o.CreatedAt, Since: o.Since, EndedAt: o.EndedAt,
				}, nil) {
					return
				}
			}
			if len(query.Rows) < listPage {
				return
			}
		}
		yield(Listed{}, err)
	}
}

// query checks the filter, and returns the request for the first page of operations.
func (f *Filter) query() (*db.ListOperations, error) {
	after := firstID
	if f.After != "" {
		id, err := parsedID(f.After)
		if err != nil {
			return nil, fmt.Errorf("%w: Filter.After is %.40q", err, f.After)
		}
		after = id
	}
	if !slices.Contains(states, f.State) {
		return nil, fmt.Errorf("operation: Filter.State is %.40q: use running, parked, completed, failed or undone", f.State)
	}
	if f.Older < 0 {
		return nil, fmt.Errorf("operation: Filter.Older is negative: %v", f.Older)
	}
	return &db.ListOperations{
		State: db.OperationState(f.State), AfterOperation: after, Scope: f.Scope, Name: f.Name, Step: f.Step, Age: f.Older, Room: listPage,
	}, nil
}

// RetryAll retries the parked operations that f selects, each in a transaction of its own, and
// returns how many it has retried. It ends at the first error. The operations that it has retried
// by then stay retried, and another RetryAll continues with the others. f.State must be StateParked
// or empty.
func RetryAll(ctx context.Context, pool *pgxpool.Pool, f Filter) (int, error) {
	if f.State == "" {
		f.State = StateParked
	}
	if f.State != StateParked {
		return 0, fmt.Errorf("operation: RetryAll: Filter.State is %.40q: only parked operations can be retried", f.State)
	}
	return forEach(ctx, pool, f, Retry)
}

// CancelAll cancels the operations that f selects, each in a transaction of its own, and returns
// how many it has canceled. It ends at the first error. f.State must be StateRunning or
// StateParked.
func CancelAll(ctx context.Context, pool *pgxpool.Pool, f Filter, opts ...CancelOption) (int, error) {
	if f.State != StateParked && f.State != StateRunning {
		return 0, fmt.Errorf("operation: CancelAll: Filter.State is %.40q: only operations that are running or parked can be canceled", f.State)
	}
	return forEach(ctx, pool, f, func(ctx context.Context, pool *pgxpool.Pool, id string) error { return Cancel(ctx, pool, id, opts...) })
}

// forEach calls the function do once for every operation that f selects, and counts the calls that
// succeed. It skips operations whose state has changed since they were listed.
func forEach(ctx context.Context, pool *pgxpool.Pool, f Filter, do func(context.Context, *pgxpool.Pool, string) error) (n int, err error) {
	for o, err := range All(ctx, pool, f) {
		if err != nil {
			return n, err
		}
		switch err := do(ctx, pool, o.ID); {
		case err == nil:
			n++
		case errors.Is(err, ErrNotParked), errors.Is(err, ErrUnknownOperation):
		default:
			return n, fmt.Errorf("operation %s: %w", o.ID, err)
		}
	}
	return n, nil
}

// history is the document that History returns and Replay reads.
type history struct {
	Format   int               `json:"format"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	State    db.OperationState `json:"state"`
	Undoing  bool              `json:"undoing,omitempty"`
	Canceled bool              `json:"canceled,omitempty"`
	Input    storedValue       `json:"input"`
	Steps    []historyStep     `json:"steps"`
}

// historyStep is a row of the record: a step, an undo, or the error or rejection in which the
// operation ends. A call in doubt is a row, too. The rows are in the order of their positions.
type historyStep struct {
	Kind    db.StepKind    `json:"kind"`
	Name    string         `json:"name"`
	Outcome db.StepOutcome `json:"outcome"`
	Undos   int            `json:"undos,omitempty"`
	storedValue
}

// format is the version of the history document. So far there is only one version.
const format = 1

// storedValue is an input or the value of a step, in its stored form. JSON is kept as JSON, so that
// a person can read and change it. The output of other codecs is base64.
type storedValue struct {
	Value  json.RawMessage `json:"value,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func newStoredValue(stored []byte) storedValue {
	var compact bytes.Buffer
	if json.Compact(&compact, stored) == nil && bytes.Equal(compact.Bytes(), stored) {
		return storedValue{Value: stored}
	}
	return storedValue{Base64: stored}
}

// stored returns the value as it was stored, even if the JSON document was formatted in another
// way.
func (v *storedValue) stored() []byte {
	var compact bytes.Buffer
	if v.Value != nil && json.Compact(&compact, v.Value) == nil {
		return compact.Bytes()
	}
	return v.Base64
}

// History returns the record of an operation as a JSON document: its input, and its steps with
// their values. The operation may be in progress or ended. Replay runs new code on the document.
// The document has no key and no scope. The input and the values are in clear text: replace what is
// secret before you share the document.
//
// The Sealer in opts decrypts sealed values; other options have no effect. If a value is sealed and
// there is no Sealer, History returns idem.ErrUnreadable. If no operation has the id, it returns
// ErrUnknownOperation. An operation that was a single transaction has no record, and is unknown,
// too.
func History(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) ([]byte, error) {
	id, err := parsedID(id)
	if err != nil {
		return nil, err
	}
	sealer, err := idemCalls.Sealer(opts)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errNoPool
	}
	found := db.LoadHistory{OperationID: id}
	if err := engineOf(pool).Query(ctx, &found); err != nil {
		return nil, err
	}
	if !found.Found {
		return nil, ErrUnknownOperation
	}
	h := history{Format: format, ID: id, Name: found.Name, State: found.State, Undoing: found.Undoing, Canceled: found.Canceled, Steps: []historyStep{}}
	input, err := open(sealer, found.Input, db.BoundInput(id))
	if err != nil {
		return nil, fmt.Errorf("operation: the input of operation %s: %w", id, err)
	}
	h.Input = newStoredValue(input)
	for i := range found.Steps {
		s := &found.Steps[i]
		value, err := open(sealer, s.Value, db.BoundStep(id, s))
		if err != nil {
			return nil, fmt.Errorf("operation: step %q of operation %s: %w", s.Name, id, err)
		}
		h.Steps = append(h.Steps, historyStep{s.Kind, s.Name, s.Outcome, s.Undos, newStoredValue(value)})
	}
	var file bytes.Buffer
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false) // so that Replay gets the values byte for byte
	encoder.SetIndent("", "  ")
	err = encoder.Encode(h)
	return file.Bytes(), err
}

func readHistory(file []byte) (*history, error) {
	h := &history{}
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(h); err != nil {
		return nil, fmt.Errorf("operation: the document is not a history: %w", err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("operation: the document is not a history, or is one of another version of idem: its format is %d", h.Format)
	}
	return h, nil
}

// Replay runs the function of an operation on a document of History, without a database. Each
// recorded step returns its recorded outcome, and the run ends where the record ends. No other step
// is executed. Replay uses the definition whose name is in the history.
//
// Replay returns nil if the code can continue the operation, or ends it in the recorded way. It
// returns a *ParkedError if the operation would park with this code: the code asks for other steps
// than the recorded ones or for fewer steps, or a value does not decode. Replay returns another
// error if the document is not a history or no definition has its name. The same is true if the
// function fails, or ends the operation in another way than the recorded one.
//
// If the operation has ended, all its steps count as recorded, even the steps that were committed
// together with its end. If the code no longer asks for one of these last steps, Replay reports a
// *ParkedError. No operation in progress would park for this reason, because the record of an
// operation in progress does not have these steps yet.
func Replay(ctx context.Context, history []byte, definitions ...Runnable) error {
	h, err := readHistory(history)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(definitions, func(d Runnable) bool { return d.defined().name == h.Name })
	if i < 0 {
		return fmt.Errorf("operation: no definition has the name %q of the history", h.Name)
	}
	d := definitions[i].defined()
	if d.err != nil {
		return d.err
	}
	execution, err := idemCalls.Execution(nil, h.ID, h.ID, [32]byte{1}, 0, nil)
	if err != nil {
		return err
	}
	w := &work{definition: d, execution: execution, operation: h.ID, input: h.Input.stored(), epoch: 1, journal: h.journal()}
	w.clock = clock{loadedAt: time.Now(), loaded: time.Now()}
	op := &Op{work: w, occurrences: map[string]int{}}
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	_, err = d.run(op, w.input)
	op.over = true
	return op.replayed(h, err)
}

// journal returns the journal that the history describes. All its pauses have ended.
func (h *history) journal() journal {
	rows := make([]db.Step, len(h.Steps))
	for i, s := range h.Steps {
		rows[i] = db.Step{Seq: i + 1, Kind: s.Kind, Name: s.Name, Outcome: s.Outcome, Value: s.stored(), Undos: s.Undos, DueAt: time.Now()}
	}
	j := newJournal(rows)
	j.undoing, j.canceled, j.replays = h.Undoing, h.Canceled, true
	return j
}

// replayed returns the result of Replay after a run whose function has returned err.
func (op *Op) replayed(h *history, err error) error {
	d, how, s := op.conclude(err)
	if s == nil {
		s = d.stop // nil unless the decision is to park
	}
	switch {
	case s != nil && s.kind == stopParked:
		return &ParkedError{OperationID: h.ID, Step: s.step, Reason: s.reason, ReasonText: s.text, Cause: s.cause}
	case s != nil && s.kind == stopSuspended: // the record ends here, and the code can continue the operation
		return nil
	case s != nil:
		return s.err
	case d.do == retry:
		return fmt.Errorf("operation: the function fails: %w", err)
	case how == exitFinal && d.do == unwind && h.State == db.OperationCompleted:
		return fmt.Errorf("operation: the operation was completed, and the function ends it in an error: %w", err)
	}
	return nil
}
