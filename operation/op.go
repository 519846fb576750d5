package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Op is one run of the function of an operation, which takes its steps through it. It is of no use once the function has
// returned.
type Op struct {
	work   *work
	ctx    context.Context
	cancel context.CancelCauseFunc

	taking  sync.Mutex  // a step is being taken
	misused atomic.Bool // Changed was asked out of turn, and could not say so
	misuses atomic.Pointer[error]
	over    bool  // the function has returned
	stopped *stop // why no step is taken any more

	tx      *txn.Tx // open, with a savepoint; nil if there is none
	used    bool    // something has run behind the savepoint
	pending []store.RecordStep
	signals []store.TakeSignal
	awaits  bool // the function has asked for a signal

	current string // the step that was asked for last, or the undo that is run

	grouped bool         // Calls have a Go, and no Wait yet
	pairs   map[int]bool // the places of calls that are made together with the one in the next place
	cut     bool         // a call that was to be made together with others is not made, because the operation is cancelled

	undoing bool // the function has said that it is to be undone, and the next commit says so

	seq         int // of the last step
	occurrences map[string]int
	undos       []undo
}

// definition is what is the same for all types of input.
type definition struct {
	name      string
	codec     Codec
	known     known         // errors that the function is given as they were
	limit     time.Duration // for how long calls are tried again, 0 for ever
	maxDeaths int           // of processes that work on one of it, until it is parked
	atOnce    int           // how many a Worker works on at a time, 0 for as many as it may
	err       error         // why it cannot be used
	// run calls the function with an input as it is stored.
	run func(op *Op, input []byte) (idem.Response, error)
}

// work is an operation that this process works on.
type work struct {
	definition *definition
	call       longcall.Execution
	instance   *instance

	key       store.Key
	operation string // its id
	parent    string // the operation that awaits it; empty if it is no child
	input     []byte
	ttl       time.Duration
	createdAt time.Time

	// As last committed. The epoch is 0 as long as nothing is.
	epoch      int
	attempts   int  // how often it was taken up without getting on
	suspected  bool // it has the turn of this process
	undoing    bool
	cancelled  bool
	accepted   bool // it may be undone although nothing takes back some of its calls
	leftFrom   int  // the place from which on a person leaves what is on record as it is; 0 if there is none
	at         store.At
	elapsed    func() time.Duration // since that step was begun
	recorded   map[int]store.Step   // with the call that was begun and has no end on record
	unrecorded int                  // the place of that call if it was begun alone, and so has no row of its own; 0 if there is none
	given      map[int]bool         // those of them whose value a person has given
	loadedAt   time.Time            // when that was read, by the database's clock
	loaded     time.Time            // and here

	cause error // for which it was undone, and its key freed

	// What calls have returned, by their place. It outlasts the run, however that ends, until it is on record: see keep.
	returned map[int]store.Step

	// The Tx behind whose fn constraints are checked, by their place, because the commit behind them has failed.
	checked map[int]bool

	replays bool // nothing but what is on record is to be had: see Replay
}

// undo is an undo that the function has registered.
type undo struct {
	step    step
	safety  Safety
	options callOptions
	tx      func(pgx.Tx) error
	call    func(ctx context.Context, key string) error
	covers  int // the first step that it takes back
}

// ID returns the id of the operation. It is the same in every run, and known to the record of the key: carry it into events.
// A signal is sent to it.
func (op *Op) ID() string { return op.work.operation }

// Context returns the context of this run. It ends when the caller leaves, when the Worker is told to stop, and when this
// process may no longer work on the operation.
func (op *Op) Context() context.Context { return op.ctx }

// halt ends the run: whatever the function does from here on has no effect.
func (op *Op) halt(w why, err error) error {
	if op.stopped == nil {
		op.stopped = &stop{why: w, err: err}
	}
	return op.stopped
}

// haltFree ends the run, and begins another one that does not count as a retry.
func (op *Op) haltFree(err error) error {
	if op.stopped == nil {
		op.stopped = &stop{why: again, err: err, free: true}
	}
	return op.stopped
}

func (op *Op) park(format string, args ...any) error {
	if op.stopped == nil {
		op.stopped = &stop{why: parked, step: op.current, reason: fmt.Sprintf(format, args...)}
	}
	return op.stopped
}

// parkFor parks the operation because of an error that is not of this package. Its text may tell of a person: the reason, which is
// stored plain, quotes no more of it than its beginning, and where a Sealer is set nothing but the types.
func (op *Op) parkFor(cause error, format string, args ...any) error {
	told := storable(textOf(cause))
	if op.work.call.Sealer() != nil {
		told = typesOf(cause)
	}
	if op.stopped == nil {
		_ = op.park(format+": %.*s", append(args, maxQuoted, told)...)
		op.stopped.cause = cause
	}
	return op.stopped
}

// parkUnfit parks the operation because the value on record of a step is of another type than wanted. One that a person has given may be
// given again.
func (op *Op) parkUnfit(s *step, wanted any) error {
	if op.work.given[s.seq] && op.stopped == nil {
		_ = op.park("the value that a person has given for %q does not decode into %T: resolve it again with one that does", s.name, wanted)
		op.stopped.step, op.stopped.unfit = s.name, true
	}
	return op.park("the recorded value of step %q does not decode into %T: the code has changed", s.name, wanted)
}

// maxQuoted is how many characters of an error the reason of a parked operation quotes.
const maxQuoted = 200

// interrupted ends the run because its context has ended.
func (op *Op) interrupted() error {
	if cause := context.Cause(op.ctx); errors.Is(cause, errPresenceLost) {
		return op.halt(again, cause)
	}
	return op.halt(left, context.Cause(op.ctx))
}

// step is a step that is being taken.
type step struct {
	seq   int
	kind  store.StepKind
	name  string      // with its number, if the name is used again
	found *store.Step // what is on record of it
}

// halted returns why no step is taken any more, nil if steps are.
func (op *Op) halted() error {
	if op.misused.Load() {
		err := ErrMisused
		if how := op.misuses.Load(); how != nil {
			err = *how
		}
		_ = op.halt(broken, err)
	}
	if op.stopped != nil {
		return op.stopped
	}
	return nil
}

// misuse ends the run: no further step is taken, and whatever the function returns, its error is this one.
func (op *Op) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrMisused}, args...)...)
	op.misuses.CompareAndSwap(nil, &err)
	op.misused.Store(true)
	return err
}

// paired notes that a call and the one in the next place are made together.
func (op *Op) paired(seq int) {
	if op.pairs == nil {
		op.pairs = map[int]bool{}
	}
	op.pairs[seq] = true
}

// numbered returns the name, with a number if it is used again.
func (op *Op) numbered(kind store.StepKind, name string) string {
	if op.occurrences == nil {
		op.occurrences = map[string]int{}
	}
	used := string(kind) + "\n" + name
	op.occurrences[used]++
	if n := op.occurrences[used]; n > 1 {
		return fmt.Sprintf("%s#%d", name, n)
	}
	return name
}

// remember has a step recorded by the next commit.
func (op *Op) remember(s *step, outcome store.StepOutcome, value []byte) {
	r := store.RecordStep{
		OperationID: op.work.operation,
		Step:        store.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value},
		First:       op.work.hasNoRow(s.seq),
	}
	for i := range op.pending {
		if op.pending[i].Step.Seq == s.seq { // an undo that was registered, and its outcome
			op.pending[i] = r
			return
		}
	}
	op.pending = append(op.pending, r)
}

// hasNoRow reports whether it is known that a step has no row in idem.steps.
func (w *work) hasNoRow(seq int) bool {
	_, recorded := w.recorded[seq]
	return !recorded || seq == w.unrecorded
}

// replay returns what is on record of a step that is over.
func (op *Op) replay(s *step) (value []byte, err error) {
	if s.found.Outcome != store.StepFailed {
		return s.found.Value, nil
	}
	failed, err := decodeFailure(op.work.definition.known, s.found.Value)
	if err != nil {
		return nil, op.park("the recorded error of step %q %v", s.name, err)
	}
	return nil, failed
}

// failure returns the error of a step as it is stored, and as the function sees it: in this run as in every later one.
func (op *Op) failure(err error) (stored []byte, seen error) {
	var rejected *idem.Response
	if resp, ok := op.work.call.Rejection(err); ok {
		rejected = &idem.Response{Status: resp.Status, Header: resp.Header, Body: resp.Body}
	}
	known := op.work.definition.known
	stored = encodeFailure(known, err, rejected)
	if seen, failed := decodeFailure(known, stored); failed == nil {
		return stored, seen
	}
	return stored, err
}

// result turns what a step returned into its value. A stored value that no longer decodes is a change of the code.
func result[T any](op *Op, s *step, stored []byte, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	value, err := decode[T](op.work.definition.codec, stored)
	if err != nil {
		return none, op.parkUnfit(s, none)
	}
	return value, nil
}
