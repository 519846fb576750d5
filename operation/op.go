package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// Definition is a kind of operation: a name, and the function that is its code.
type Definition[In any] struct {
	definition
}

// definition is the part of a Definition that does not depend on the type of the input.
type definition struct {
	name        string
	codec       Codec
	knownErrors storederror.Set // errors that the function gets as they were
	limit       time.Duration   // how long a call is tried again; 0: no limit
	maxDeaths   int             // after this many deaths of its process an operation parks
	concurrency int             // how many operations a Worker works on at a time; 0: no limit of its own
	err         error           // why the definition cannot be used
	// run decodes a stored input, and calls the function with it.
	run func(op *Op, input []byte) (idem.Response, error)
}

// Runnable is a Definition with any type of input. A Worker takes Definitions of several types.
type Runnable interface{ defined() *definition }

func (d *definition) defined() *definition { return d }

// input encodes an input.
func (d *Definition[In]) input(in In) ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	input, _, err := encode(d.codec, in)
	return input, err
}

// work is an operation that this process works on, from the claim to the release. It lasts for
// several runs of the function if transactions have to be repeated.
type work struct {
	definition *definition
	execution  bridge.Execution
	instance   *presence.Instance // nil until the first commit, and after the release
	logger     *slog.Logger       // nil: slog.Default()
	turn       *turn              // held if the operation is a suspect

	key       db.Key
	operation string // the id
	parent    string // the operation that awaits this one; empty if this one is no child
	input     []byte
	ttl       time.Duration
	createdAt time.Time

	// These fields are as of the last commit. The epoch is 0 until the first one.
	epoch   int
	journal journal
	at      db.At
	begunAt time.Time // when the step of at was begun, by the clock of this process
	clock   clock
	// rowless is the position of a call that was begun alone; 0 if there is none. Such a call is in
	// the row of the operation, and gets a row in idem.steps only with its outcome.
	rowless int

	endError   error           // the error in which a commit of this work ended the operation
	unrecorded map[int]db.Step // outcomes of calls that are not committed yet, by position
	checkAfter map[int]bool    // Tx steps after which deferred constraints are checked: see attribute

	// unsent has the positions of calls that may be recorded as begun although no attempt was sent:
	// the COMMIT that begins them was not acknowledged.
	unsent map[int]bool
}

// textOf returns the text of an error for logs and for the reason of a parked operation. With a
// Sealer it returns only the types of the error.
func (w *work) textOf(err error) string {
	if w.execution.Sealer() != nil {
		return storederror.Types(err)
	}
	return storederror.Storable(storederror.Text(err))
}

// stepError returns err in the form in which the record of the operation stores it, or nil if err
// is nil. step is empty for an error of the function. If the text cannot be sealed, stepError
// leaves the text out.
func (w *work) stepError(step string, attempt int, err error) *db.StepError {
	if err == nil {
		return nil
	}
	text, sealing := seal(w.execution.Sealer(), []byte(storederror.Storable(storederror.Text(err))), db.BoundError(w.operation, step))
	if sealing != nil {
		text = nil
	}
	return &db.StepError{Step: step, Attempt: max(attempt, 1), Text: text}
}

// Op is one run of the function of an operation, which takes its steps through it. It cannot be
// used after the function has returned.
type Op struct {
	work   *work
	ctx    context.Context
	cancel context.CancelCauseFunc

	taking  sync.Mutex            // held while a step is taken
	misused atomic.Pointer[error] // the first misuse; it ends the run
	over    bool                  // the function has returned
	stopped *stop                 // why no further step is taken; nil while the run continues

	tx          *txn.Tx // open, with a savepoint; nil if there is none
	dirty       bool    // a step has run after the savepoint
	pending     []db.RecordStep
	signals     []txn.Request // mark the signals that the pending steps have received as taken
	usesSignals bool          // the function has asked for a signal or a child
	callsOpen   bool          // the function has called Go, and not Wait yet

	seq         int            // the position of the last step that the function has asked for
	settled     int            // the last position up to which every step has an outcome, and its undos are in undos
	current     string         // the name of the step at seq, or of the step whose undo runs
	occurrences map[string]int // how often each name was used
	undos       []plannedUndo  // of the done steps so far, in their order
	undoing     bool           // the next commit records the decision to undo the operation
}

// ID returns the id of the operation. It is the same in every run, and is the id of the record of
// the key. Signals are sent to it, and events can carry it.
func (op *Op) ID() string { return op.work.operation }

// Context returns the context of this run. It ends when the caller's context ends, when the Worker
// stops, and when this process may no longer work on the operation.
func (op *Op) Context() context.Context { return op.ctx }

// step is a step that the function has asked for, with what decide said about it.
type step struct {
	request
	decision
}

// position returns the position of an operation that is at the step, and due after pause.
func (s *step) position(pause time.Duration) db.At {
	return db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: pause}
}

// plannedUndo is an undo of a done step.
type plannedUndo struct {
	seq      int // of the step
	stepName string
	index    int     // among the undos of the step
	policy   *Policy // of an UndoCall
	// prepare decodes the value of the step, and returns one of the two functions.
	prepare func() (func(pgx.Tx) error, func(ctx context.Context, key string) error, error)
}

// halt stops the run. If the run was stopped before, the first reason counts. It returns the error
// that every further step returns.
func (op *Op) halt(kind stopKind, err error) error { return op.stop(&stop{kind: kind, err: err}) }

// rerunUncounted stops the run, and begins another one that does not count as a retry.
func (op *Op) rerunUncounted(err error) error {
	return op.stop(&stop{kind: stopRerun, err: err, uncounted: true})
}

func (op *Op) stop(s *stop) error {
	if op.stopped == nil {
		op.stopped = s
	}
	return op.stopped
}

// park parks the operation at a step.
func (op *Op) park(step string, reason Reason, format string, args ...any) error {
	return op.stop(parked(step, reason, format, args...))
}

// maxQuoted is how many characters of an error the reason of a parked operation quotes.
const maxQuoted = 200

// parkFor parks the operation because of an error of the program or of another system, which the
// attempt of that number has returned. The text of the reason is stored unsealed, so it quotes only
// the beginning of the error, and only its types if there is a Sealer. Without a cause parkFor is
// park.
func (op *Op) parkFor(cause error, attempt int, step string, reason Reason, format string, args ...any) error {
	s := parked(step, reason, format, args...)
	if cause != nil {
		s.text += fmt.Sprintf(": %.*s", maxQuoted, op.work.textOf(cause))
		s.cause, s.attempt = cause, attempt
	}
	return op.stop(s)
}

// interrupted stops the run because its context has ended.
func (op *Op) interrupted() error {
	if cause := context.Cause(op.ctx); errors.Is(cause, presence.ErrLost) {
		return op.halt(stopRerun, cause)
	}
	return op.halt(stopCallerLeft, endOf(op.ctx))
}

// stopError returns why no further step is taken, nil while the run continues.
func (op *Op) stopError() error {
	if misuse := op.misused.Load(); misuse != nil {
		_ = op.halt(stopFailed, *misuse)
	}
	if op.stopped != nil {
		return op.stopped
	}
	return nil
}

// misuse makes the run fail with an ErrMisused, whatever the function returns. No further step is
// taken. Unlike halt it may be called from any goroutine.
func (op *Op) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrMisused}, args...)...)
	op.misused.CompareAndSwap(nil, &err)
	return err
}

// endOf returns the error of a context that has ended, and its cause.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// idemCalls are the functions of package idem that claim keys and record answers.
var idemCalls = bridge.Get[idem.Option, idem.Result]()

var errNoPool = errors.New("operation: pool is nil")

func failedWith(err error) bridge.Ending {
	return bridge.Ending{Outcome: bridge.Failed, Err: err}
}

func engineOf(pool *pgxpool.Pool) *txn.Engine {
	return &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
}

// A killed process leaves the rows of its operations with an owner that no longer exists. Claiming
// such an operation counts a death, and a commit resets the count. After db.Suspected deaths the
// operation is a suspect: its function may be what kills the process. A process begins one suspect
// at a time. So an operation that kills its process does not take other suspects with it, and they
// make progress. A suspect that runs longer than suspectLimit gives its turn to the next one.

// maxDeaths is the default of WithMaxDeaths.
const maxDeaths = 10

// suspectLimit is how long a suspect keeps other suspects from beginning. A function that hangs
// does not kill its process.
const suspectLimit = 10 * time.Second

// turns has room for one suspect in this process, for all its pools.
var turns = make(chan struct{}, 1)

// turn is the right to work on a suspect.
type turn struct{ once sync.Once }

// takeTurn returns the turn, or nil if another suspect has it.
func takeTurn() *turn {
	select {
	case turns <- struct{}{}:
		return &turn{}
	default:
		return nil
	}
}

// end gives the turn to the next suspect. It may be called several times, and on nil.
func (t *turn) end() {
	if t != nil {
		t.once.Do(func() { <-turns })
	}
}

// holdTurn keeps the turn for the operation until it is released, but no longer than suspectLimit.
func (w *work) holdTurn(t *turn) {
	w.turn = t
	time.AfterFunc(suspectLimit, t.end)
}
