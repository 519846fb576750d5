package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
)

// Filter selects operations. Its zero value selects all of them, 100 at a time.
type Filter struct {
	State State         // empty: any
	Name  string        // of the definition; empty: any
	Step  string        // the one in progress, or waited for, or at which it is parked; empty: any
	Scope string        // what the scope begins with
	Older time.Duration // begun at least that long ago, by the database's clock
	After string        // the id of the last operation of the page before
	Limit int           // operations in a page; 0 means 100, and 1,000 is the most
}

// Listed is an operation of a List. Show returns more of it.
type Listed struct {
	ID         string
	Scope      string
	Name       string
	State      State
	Undoing    bool
	Step       string
	Attempts   int
	Reason     Reason // why it is parked
	ReasonText string // the same as a sentence
	CreatedAt  time.Time
	Since      time.Time // when the step was begun
	EndedAt    time.Time // zero until it has ended
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// firstID is below the id of every operation.
const firstID = "00000000-0000-0000-0000-000000000000"

var states = []State{"", StateRunning, StateParked, StateCompleted, StateFailed, StateUndone}

// List returns a page of operations, in the order of their ids, which says nothing about time. The
// next page is the same filter with After set to the last id; a page with fewer than Limit
// operations is the last. Operations that run or are parked have an index. To find others by name,
// scope or step, List reads the table from After on until the page is full.
func List(ctx context.Context, pool *pgxpool.Pool, f Filter) ([]Listed, error) {
	query, err := f.query()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errNoPool
	}
	if err := engineOf(pool).Query(ctx, query); err != nil {
		return nil, err
	}
	page := make([]Listed, len(query.Rows))
	for i, o := range query.Rows {
		page[i] = Listed{
			ID: o.OperationID, Scope: o.Scope, Name: o.Name, State: State(o.State), Undoing: o.Undoing, Step: o.Step,
			Attempts: o.Attempts, Reason: Reason(o.Reason), ReasonText: o.ReasonText, CreatedAt: o.CreatedAt, Since: o.Since, EndedAt: o.EndedAt,
		}
	}
	return page, nil
}

func (f *Filter) query() (*db.ListOperations, error) {
	after := firstID
	if f.After != "" {
		id, err := parsedID(f.After)
		if err != nil {
			return nil, fmt.Errorf("%w: Filter.After is %.40q", err, f.After)
		}
		after = id
	}
	switch {
	case !slices.Contains(states, f.State):
		return nil, fmt.Errorf("operation: Filter.State is %.40q, and not one of running, parked, completed, failed, undone", f.State)
	case f.Limit < 0, f.Limit > maxPage:
		return nil, fmt.Errorf("operation: Filter.Limit is %d, and not between 0 and %d", f.Limit, maxPage)
	case f.Older < 0:
		return nil, fmt.Errorf("operation: Filter.Older is negative: %v", f.Older)
	}
	room := f.Limit
	if room == 0 {
		room = defaultPage
	}
	return &db.ListOperations{
		State: db.OperationState(f.State), AfterOperation: after, Scope: f.Scope, Name: f.Name, Step: f.Step, Age: f.Older, Room: room,
	}, nil
}

// RetryAll retries the parked operations that f selects, each in a transaction of its own, and
// returns how many. An error ends it: what was retried before stays so, and another RetryAll goes
// on with the rest. f.State is parked, or empty; f.Limit is the size of a page, and bounds nothing.
func RetryAll(ctx context.Context, pool *pgxpool.Pool, f Filter) (int, error) {
	if f.State == "" {
		f.State = StateParked
	}
	if f.State != StateParked {
		return 0, fmt.Errorf("operation: RetryAll is for parked operations, and Filter.State is %.40q", f.State)
	}
	return forEach(ctx, pool, f, Retry)
}

// CancelAll cancels the operations that f selects, as RetryAll retries them. f.State is running or
// parked.
func CancelAll(ctx context.Context, pool *pgxpool.Pool, f Filter, opts ...CancelOption) (int, error) {
	if f.State != StateParked && f.State != StateRunning {
		return 0, fmt.Errorf("operation: CancelAll is for operations that are running or parked, and Filter.State is %.40q", f.State)
	}
	return forEach(ctx, pool, f, func(ctx context.Context, pool *pgxpool.Pool, id string) error { return Cancel(ctx, pool, id, opts...) })
}

// forEach does something to every operation that f selects, once. An operation that has changed its
// state since it was listed is left alone.
func forEach(ctx context.Context, pool *pgxpool.Pool, f Filter, do func(context.Context, *pgxpool.Pool, string) error) (n int, err error) {
	for {
		page, err := List(ctx, pool, f)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for _, o := range page {
			switch err := do(ctx, pool, o.ID); {
			case err == nil:
				n++
			case errors.Is(err, ErrNotParked), errors.Is(err, ErrUnknownOperation):
			default:
				return n, fmt.Errorf("operation %s: %w", o.ID, err)
			}
		}
		f.After = page[len(page)-1].ID
	}
}

// history is the document that History returns and Replay reads.
type history struct {
	Format   int               `json:"format"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	State    db.OperationState `json:"state"`
	Undoing  bool              `json:"undoing,omitempty"`
	Canceled bool              `json:"canceled,omitempty"`
	Input    shown             `json:"input"`
	Steps    []historyStep     `json:"steps"`
}

// historyStep is a row of the record, in order: a step, an undo, or the end that was decided. A
// call in doubt is one of them.
type historyStep struct {
	Kind    db.StepKind    `json:"kind"`
	Name    string         `json:"name"`
	Outcome db.StepOutcome `json:"outcome"`
	Undos   int            `json:"undos,omitempty"`
	shown
}

// format is what this version writes, and the only one that there is.
const format = 1

// shown is an input or a value as it is stored. JSON is shown as JSON, so that a person can read
// and change it; what another Codec has made is in base64.
type shown struct {
	Value  json.RawMessage `json:"value,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func shownAs(stored []byte) shown {
	var compact bytes.Buffer
	if json.Compact(&compact, stored) == nil && bytes.Equal(compact.Bytes(), stored) {
		return shown{Value: stored}
	}
	return shown{Base64: stored}
}

// stored returns the value as it was, however the file is laid out.
func (e *shown) stored() []byte {
	var compact bytes.Buffer
	if e.Value != nil && json.Compact(&compact, e.Value) == nil {
		return compact.Bytes()
	}
	return e.Base64
}

// History returns the record of an operation, in progress or ended: its input and its steps with
// their values, as a JSON document for a file. Replay runs new code on it. It has no key and no
// scope; input and values are there in clear, and may be changed by hand before the file is shared.
// Those that are sealed are opened with the Sealer among opts, the only option that matters:
// without it the error is idem.ErrUnreadable. ErrUnknownOperation is also the error for one that
// was a single transaction, of which nothing is recorded.
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
		return nil, fmt.Errorf("operation: its input: %w", err)
	}
	h.Input = shownAs(input)
	for i := range found.Steps {
		s := &found.Steps[i]
		value, err := open(sealer, s.Value, db.BoundStep(id, s))
		if err != nil {
			return nil, fmt.Errorf("operation: step %q: %w", s.Name, err)
		}
		h.Steps = append(h.Steps, historyStep{s.Kind, s.Name, s.Outcome, s.Undos, shownAs(value)})
	}
	return h.encode()
}

func (h *history) encode() ([]byte, error) {
	var file bytes.Buffer
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false) // a value is to come back byte for byte
	encoder.SetIndent("", "  ")
	err := encoder.Encode(h)
	return file.Bytes(), err
}

// readHistory reads a document of History.
func readHistory(file []byte) (*history, error) {
	h := &history{}
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(h); err != nil {
		return nil, fmt.Errorf("operation: it is no history: %w", err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("operation: it is no history, or one of another version of idem: its format is %d", h.Format)
	}
	return h, nil
}

// Replay runs the function of an operation on what History has returned of it, without a database:
// each recorded step returns what is recorded, and the run ends where the record ends. No step is
// taken and no call is made. The definition is the one whose name is in the history.
//
// It returns nil if a process with this code would resume the operation, or end it as it has ended.
// A *ParkedError says why the operation parks with this code: the code asks for other steps than the
// recorded ones, or for fewer, or a value does not decode. Any other error is that of a document
// that is no history, a name without a definition, or a function that fails or ends otherwise.
//
// Of an operation that has ended all steps count as recorded, also those that were committed
// together with its end: code that no longer asks for one of those is reported, although no
// operation in progress has it.
func Replay(ctx context.Context, history []byte, definitions ...Runnable) error {
	h, err := readHistory(history)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(definitions, func(d Runnable) bool { return d.defined().name == h.Name })
	if i < 0 {
		return fmt.Errorf("operation: no definition is called %q: operations of that name are left alone", h.Name)
	}
	d := definitions[i].defined()
	if d.err != nil {
		return d.err
	}
	call, err := idemCalls.Execution(nil, h.ID, h.ID, [32]byte{1}, 0, nil)
	if err != nil {
		return err
	}
	w := &work{definition: d, call: call, operation: h.ID, input: h.Input.stored(), epoch: 1, journal: h.journal()}
	w.clock = clock{loadedAt: time.Now(), loaded: time.Now()}
	op := &Op{work: w}
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	_, err = d.run(op, w.input)
	op.over = true
	return op.replayed(h, err)
}

// journal makes a journal of a history. A pause in front of another step is over.
func (h *history) journal() journal {
	rows := make([]db.Step, len(h.Steps))
	for i, s := range h.Steps {
		rows[i] = db.Step{Seq: i + 1, Kind: s.Kind, Name: s.Name, Outcome: s.Outcome, Value: s.stored(), Undos: s.Undos, DueAt: time.Now()}
	}
	j := newJournal(rows)
	j.undoing, j.canceled, j.replays = h.Undoing, h.Canceled, true
	return j
}

// replayed returns what a run on a history has come to.
func (op *Op) replayed(h *history, err error) error {
	v, how, s := op.judge(err)
	switch {
	case s != nil && s.why == stopParked:
		return &ParkedError{OperationID: h.ID, Step: s.step, Reason: s.reason, ReasonText: s.text, Cause: s.cause}
	case s != nil && s.why == stopSuspended: // how the function goes on depends on what is not recorded
		return nil
	case s != nil:
		return s.err
	case v.do == park:
		return &ParkedError{OperationID: h.ID, Step: v.at, Reason: v.reason, ReasonText: v.text}
	case v.do == retry:
		return fmt.Errorf("operation: the function fails: %w", err)
	case how == endFinal && v.do == unwind && h.State == db.OperationCompleted:
		return fmt.Errorf("operation: it was completed, and the function ends it in an error: %w", err)
	}
	return nil
}
