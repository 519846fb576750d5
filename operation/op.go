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

// definition is what is the same for all types of input.
type definition struct {
	name        string
	codec       Codec
	knownErrors storederror.Set // errors that the function gets as they were
	limit       time.Duration   // for how long calls are tried again, 0 for ever
	maxDeaths   int             // of processes that work on one of it, until it is parked
	atOnce      int             // how many a Worker works on at a time, 0 for as many as it may
	err         error           // why it cannot be used
	// run calls the function with an input as it is stored.
	run func(op *Op, input []byte) (idem.Response, error)
}

// Runnable is a Definition, for a Worker.
type Runnable interface{ defined() *definition }

func (d *definition) defined() *definition { return d }

// input returns the input as it is stored.
func (d *Definition[In]) input(in In) ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	input, _, err := encode(d.codec, in)
	return input, err
}

// work is an operation in progress in this process.
type work struct {
	definition *definition
	call       bridge.Execution
	instance   *presence.Instance
	logger     *slog.Logger // nil: that of the program
	turn       *turn        // of a suspect

	key       db.Key
	operation string // its id
	parent    string // the operation that awaits it; empty if it is no child
	input     []byte
	ttl       time.Duration
	createdAt time.Time

	// As last committed. The epoch is 0 as long as nothing is.
	epoch   int
	journal journal
	at      db.At
	elapsed func() time.Duration // since that step was begun
	clock   clock
	rowless int // the position of a call that was begun alone, and so has no row of its own; 0 if there is none

	cause     error           // for which it was undone, and its key freed
	outcomes  map[int]db.Step // what calls have returned and is not recorded, by their positions
	unsent    map[int]bool    // calls that may be recorded as begun, and of which this process knows that no attempt was sent
	checked   map[int]bool    // the Tx behind which constraints are checked, because the commit behind them has failed
	suspected bool            // it has the turn of this process
}

func (w *work) log() *slog.Logger {
	if w.logger != nil {
		return w.logger
	}
	return slog.Default()
}

// textOf returns the text of an error for the log and for the reason of a parked operation. With a
// Sealer the text has only the types of the error.
func (w *work) textOf(err error) string {
	if w.call.Sealer() != nil {
		return storederror.Types(err)
	}
	return storederror.Storable(storederror.Text(err))
}

// lastError is the last error of an operation, before it is stored.
type lastError struct {
	step    string // empty for the function
	attempt int
	err     error
}

// stepError returns an error as the record has it, nil for none. A text that cannot be sealed is
// left out.
func (w *work) stepError(f *lastError) *db.StepError {
	if f == nil {
		return nil
	}
	text, err := seal(w.call.Sealer(), []byte(storederror.Storable(storederror.Text(f.err))), db.BoundError(w.operation, f.step))
	if err != nil {
		text = nil
	}
	return &db.StepError{Step: f.step, Attempt: max(f.attempt, 1), Text: text}
}

// Op is one run of the function of an operation, which takes its steps through it. It is of no use
// once the function has returned.
type Op struct {
	work   *work
	ctx    context.Context
	cancel context.CancelCauseFunc

	taking  sync.Mutex  // a step is being taken
	misused atomic.Bool // Changed was called out of turn, and has no error to return
	misuses atomic.Pointer[error]
	over    bool  // the function has returned
	stopped *stop // why no further step is taken

	tx      *txn.Tx // open, with a savepoint; nil if there is none
	used    bool    // something has run behind the savepoint
	pending []db.RecordStep
	signals []db.TakeSignal
	awaits  bool // the function has asked for a signal
	grouped bool // Calls have a Go, and no Wait yet

	seq         int    // of the last step that the function has asked for
	current     string // its name, or that of the undo that runs
	occurrences map[string]int
	undos       []plannedUndo // of the steps so far, in their order
	unwinds     bool          // the next commit says that the operation is undone
}

// ID returns the id of the operation. It is the same in every run, and that of the record of the
// key: carry it into events. A signal is sent to it.
func (op *Op) ID() string { return op.work.operation }

// Context returns the context of this run. It ends when the caller's context ends, when the Worker
// stops, and when this process may no longer work on the operation.
func (op *Op) Context() context.Context { return op.ctx }

// step is a step that is being taken.
type step struct {
	seq      int
	kind     db.StepKind
	name     string // with its number, if the name is used again
	undos    int
	policy   string   // of a call
	do       action   // what follows for it
	recorded *db.Step // nil if there is no row
}

// plannedUndo is an undo of a step that the function has come past.
type plannedUndo struct {
	seq    int    // of the step
	of     string // its name
	index  int    // among the undos of the step
	policy *Policy
	// prepare reads the value of the step, and returns one of the two functions.
	prepare func() (func(pgx.Tx) error, func(ctx context.Context, key string) error, error)
}

// stop is why a run takes no more steps. It is the error of every step from there on, whatever the
// function makes of that.
type stop struct {
	why    why
	err    error
	reason Reason // of parked
	step   string // at which it is parked
	text   string // of parked
	cause  error  // the error of the program, or of another system, that has parked it
	tries  int    // the attempt that has returned cause; 0 if it is none of an attempt
	free   bool   // another run because of it is no retry
}

type why int

const (
	stopAgain     why = iota // the transaction is lost: the function is run again from the record
	stopLost                 // another process has taken the operation over
	stopSuspended            // the operation waits until it is due
	stopLeft                 // the caller has left
	stopParked               // a person decides
	stopUnknown              // the first COMMIT was not acknowledged
	stopBroken               // err says why
	stopUnwound              // the function is run no further, and what is done is undone
)

func (s *stop) Error() string {
	switch {
	case s.why == stopParked:
		return fmt.Sprintf("%v: %s", ErrParked, s.text)
	case s.err != nil:
		return fmt.Sprintf("operation: no further step is taken: %v", s.err)
	}
	return "operation: no further step is taken in this run"
}

func (s *stop) Unwrap() error {
	if s.why == stopParked {
		return ErrParked
	}
	return s.err
}

// ParkedError is the ErrParked of one operation.
type ParkedError struct {
	OperationID string
	Step        string // at which it has stopped
	Reason      Reason
	ReasonText  string
	Since       time.Time // when that step was begun, by the database's clock; zero if that is not known
	Cause       error     // the error of the program, or of another system, that has parked it; nil in calls that find it parked
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("%v: operation %s at step %q: %s", ErrParked, e.OperationID, e.Step, e.ReasonText)
}

// Unwrap makes errors.Is(err, ErrParked) true.
func (e *ParkedError) Unwrap() error { return ErrParked }

// halt ends the run. The first reason counts.
func (op *Op) halt(w why, err error) error { return op.stop(&stop{why: w, err: err}) }

// haltFree ends the run, and begins another one that does not count as a retry.
func (op *Op) haltFree(err error) error { return op.stop(&stop{why: stopAgain, err: err, free: true}) }

func (op *Op) stop(s *stop) error {
	if op.stopped == nil {
		op.stopped = s
	}
	return op.stopped
}

// park parks the operation at a step.
func (op *Op) park(step string, reason Reason, format string, args ...any) error {
	return op.stop(&stop{why: stopParked, step: step, reason: reason, text: fmt.Sprintf(format, args...)})
}

// maxQuoted is how many characters of an error the reason of a parked operation quotes.
const maxQuoted = 200

// parkFor parks the operation because of an error that is not of this package, at the attempt of
// that number. The text of the reason is stored plain: it quotes the beginning of the error, and
// where a Sealer is set only its types.
func (op *Op) parkFor(cause error, attempt int, step string, reason Reason, format string, args ...any) error {
	text := fmt.Sprintf(format+": %.*s", append(args, maxQuoted, op.work.textOf(cause))...)
	return op.stop(&stop{why: stopParked, step: step, reason: reason, text: text, cause: cause, tries: attempt})
}

// interrupted ends the run because its context has ended.
func (op *Op) interrupted() error {
	if cause := context.Cause(op.ctx); errors.Is(cause, presence.ErrLost) {
		return op.halt(stopAgain, cause)
	}
	return op.halt(stopLeft, endOf(op.ctx))
}

// halted returns why no step is taken any more, nil if steps are.
func (op *Op) halted() error {
	if op.misused.Load() {
		err := ErrMisused
		if how := op.misuses.Load(); how != nil {
			err = *how
		}
		_ = op.halt(stopBroken, err)
	}
	if op.stopped != nil {
		return op.stopped
	}
	return nil
}

// misuse ends the run: no further step is taken, and the run fails with this error, whatever the
// function returns.
func (op *Op) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrMisused}, args...)...)
	op.misuses.CompareAndSwap(nil, &err)
	op.misused.Store(true)
	return err
}

// endOf returns the error of a context that has ended, and its cause.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// idemCalls is what package idem does of a call that keeps its key.
var idemCalls = bridge.Get[idem.Option, idem.Result]()

var errNoPool = errors.New("operation: pool is nil")

func failedWith(err error) bridge.Ending {
	return bridge.Ending{Outcome: bridge.Failed, Err: err}
}

func engineOf(pool *pgxpool.Pool) *txn.Engine {
	return &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
}

// A killed process leaves the rows of its operations with an owner that is gone. Claiming such an
// operation counts a death, and a commit resets the count. After db.Suspected deaths an operation
// is a suspect. A process begins one suspect at a time, so that an operation that kills its process
// dies alone, and the others make progress. A suspect that runs longer than suspectLimit gives its
// turn to the next one.

// maxDeaths is the default of WithMaxDeaths.
const maxDeaths = 10

// suspectLimit is how long a suspect keeps other suspects from beginning. A call that hangs kills no
// process.
const suspectLimit = 10 * time.Second

// turns has room for one suspect in this process, for all its pools.
var turns = make(chan struct{}, 1)

// turn is the right to work on a suspect.
type turn struct{ once sync.Once }

// takeTurn returns the turn, nil if another suspect has it.
func takeTurn() *turn {
	select {
	case turns <- struct{}{}:
		return &turn{}
	default:
		return nil
	}
}

// end gives the turn to the next suspect.
func (t *turn) end() {
	if t != nil {
		t.once.Do(func() { <-turns })
	}
}

// keepTurn keeps the turn for a claimed operation that is a suspect, until the instance is released.
func (w *work) keepTurn(t *turn, found bool, taken *db.Taken) {
	if found && taken.Deaths >= db.Suspected {
		w.hold(t)
		return
	}
	t.end()
}

// hold keeps the turn for the operation, for suspectLimit at most.
func (w *work) hold(t *turn) {
	w.suspected, w.turn = true, t
	time.AfterFunc(suspectLimit, t.end)
}
