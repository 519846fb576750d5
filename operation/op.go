package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// Definition describes a kind of operation: a name, and a function whose steps are recorded. Define
// returns a Definition.
type Definition[In any] struct {
	definition
}

// definition is the part of a Definition that does not depend on the type of the input.
type definition struct {
	name        string
	codec       Codec
	knownErrors storederror.Set // errors that the function gets back unchanged: see WithErrors
	limit       time.Duration   // how long a call is retried; 0: no limit
	maxDeaths   int             // the number of deaths after which an operation parks: see WithMaxDeaths
	concurrency int             // how many operations a Worker works on at a time; 0: no limit of its own
	err         error           // why the definition cannot be used
	// run decodes a stored input, and calls the function with it.
	run func(op *Op, input []byte) (idem.Response, error)
}

// Runnable is a Definition with any type of input. A Worker takes Definitions with different types
// of input.
type Runnable interface{ defined() *definition }

func (d *definition) defined() *definition { return d }

// input encodes the input of a new operation. It returns an error if the definition cannot be used.
func (d *Definition[In]) input(in In) ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	input, _, err := encode(d.codec, in)
	return input, err
}

// work is an operation that this process works on, from the claim of the operation to its release.
// The function may run several times during that time, because transactions may have to be
// repeated.
type work struct {
	definition *definition
	execution  bridge.Execution
	instance   *presence.Instance // this process as other processes see it; nil before the first commit and after the release
	logger     *slog.Logger       // nil: slog.Default()
	turn       *turn              // the right to run an operation that may kill processes: see takeTurn; nil for other operations

	key       db.Key
	operation string // the id of the operation
	parent    string // the id of the parent; empty if the operation is no child
	input     []byte
	ttl       time.Duration
	createdAt time.Time

	// These fields describe the operation as of the last commit. The epoch is 0 before the first
	// commit.
	epoch   int
	journal journal
	at      db.At
	begunAt time.Time // when the step in progress was begun, by the clock of this process
	clock   clock
	// rowless is the position of a call that has begun and has no row in idem.steps yet; 0 if there
	// is none. Call first records its call in the row of the operation. The row in idem.steps
	// follows together with the outcome.
	rowless int

	endError   error           // the error in which this process ends the operation; nil before its last commit
	unrecorded map[int]db.Step // by position: outcomes of calls that are not committed yet
	checkAfter map[int]bool    // positions of Tx steps after which deferred constraints are checked: see attribute

	// unsent has the positions of calls that were not sent, although the record may say that they
	// have begun. The COMMIT that was to record their beginning was not acknowledged.
	unsent map[int]bool
}

// textOf returns the text of an error for logs and for the reason of a parked operation. If the
// operation has a Sealer, textOf returns only the types of the error, because the text may be
// secret.
func (w *work) textOf(err error) string {
	if w.execution.Sealer() != nil {
		return storederror.Types(err)
	}
	return storederror.Storable(storederror.Text(err))
}

// stepError returns err in the form in which the record of the operation stores it, or nil if err
// is nil. step is empty for an error of the function. If the text of err cannot be sealed, it is
// left out.
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

// Op is one run of the function of an operation. The function passes it to each step. An Op cannot
// be used after the function has returned.
type Op struct {
	work   *work
	ctx    context.Context
	cancel context.CancelCauseFunc

	taking  sync.Mutex            // locked while a step is in progress
	misused atomic.Pointer[error] // the first misuse; it ends the run
	over    bool                  // the function has returned
	stopped *stop                 // why no further step is taken; nil while the run continues

	tx          *txn.Tx // the open transaction, with a savepoint; nil if none is open
	dirty       bool    // a step has run after the savepoint
	pending     []db.RecordStep
	signals     []txn.Request // requests for the next commit, which mark received signals as taken
	usesSignals bool          // the function has asked for a signal or a child
	callsOpen   bool          // the function has added a call by Go, and has not called Wait yet

	seq         int            // the position of the last step that the function has asked for
	settled     int            // all steps up to this position have an outcome, and their undos are in undos
	current     string         // the name of the step at seq, or of the step whose undo runs
	occurrences map[string]int // how often each name was used
	undos       []plannedUndo  // the undos of the done steps so far, in the order of the steps
	undoing     bool           // the next commit records the decision to undo the operation
}

// ID returns the id of the operation. It is the same in every run, and is also the ExecutionID of
// the record of the key. Pass it to Signal, or store it in events.
func (op *Op) ID() string { return op.work.operation }

// Context returns the context of this run. The context ends when the caller's context ends, when
// the Worker stops, or when this process may no longer work on the operation.
func (op *Op) Context() context.Context { return op.ctx }

// step is a step that the function has asked for, together with the decision about it.
type step struct {
	request
	decision
}

// position returns what the row of the operation stores while the operation is at the step s and is
// due after pause.
func (s *step) position(pause time.Duration) db.At {
	return db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: pause}
}

// plannedUndo is an undo of a done step, which runs if the operation is undone.
type plannedUndo struct {
	seq      int // the position of the step
	stepName string
	index    int     // the position among the undos of the step, from 0
	policy   *Policy // the policy of an UndoCall; nil for an UndoTx
	// prepare decodes the value of the step. It returns the function of an UndoTx or of an
	// UndoCall.
	prepare func() (func(pgx.Tx) error, func(ctx context.Context, key string) error, error)
}

// halt stops the run, unless the run is stopped already. It returns the reason of the first stop,
// which is the error of every further step.
func (op *Op) halt(kind stopKind, err error) error { return op.stop(&stop{kind: kind, err: err}) }

// rerunUncounted stops the run because of err. Another run follows, and does not count as a retry.
func (op *Op) rerunUncounted(err error) error {
	return op.stop(&stop{kind: stopRerun, err: err, uncounted: true})
}

func (op *Op) stop(s *stop) error {
	if op.stopped == nil {
		op.stopped = s
		if s.kind == stopUnwound { // the step is not taken, so no undo of it can be missing
			op.settled = op.seq
		}
	}
	return op.stopped
}

func (op *Op) park(step string, reason Reason, format string, args ...any) error {
	return op.stop(parked(step, reason, format, args...))
}

// maxQuoted is the maximum number of characters of an error that the reason of a parked operation
// quotes.
const maxQuoted = 200

// parkFor parks the operation because of the error cause. attempt is the number of the attempt that
// returned cause. The reason is stored in clear text. It therefore quotes only the beginning of
// cause, or only its types if the operation has a Sealer. If cause is nil, parkFor does the same as
// park.
func (op *Op) parkFor(cause error, attempt int, step string, reason Reason, format string, args ...any) error {
	s := parked(step, reason, format, args...)
	if cause != nil {
		s.text += fmt.Sprintf(": %.*s", maxQuoted, op.work.textOf(cause))
		s.cause, s.attempt = cause, attempt
	}
	return op.stop(s)
}

func (op *Op) interrupted() error {
	if cause := context.Cause(op.ctx); errors.Is(cause, presence.ErrLost) {
		return op.halt(stopRerun, cause)
	}
	return op.halt(stopCallerLeft, endOf(op.ctx))
}

// stopError returns why no further step is taken, or nil while the run continues.
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
// taken. Any goroutine may call misuse, unlike halt.
func (op *Op) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrMisused}, args...)...)
	op.misused.CompareAndSwap(nil, &err)
	return err
}

// endOf returns the error of a context that has ended. If the cause of the context is another
// error, the result wraps both.
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

// When a process is killed, the rows of its operations still name it as their owner. A process that
// claims such an operation counts a death, and a commit of the operation resets the count. After
// db.Suspected deaths the operation is a suspect: its function may be what kills the processes. The
// turn is the right to work on a suspect. In a process, one suspect at a time has the turn. If a
// suspect kills the process, no other suspect counts a death, so the others can make progress. If a
// suspect runs longer than suspectLimit, another suspect can take the turn.

// maxDeaths is the default of WithMaxDeaths.
const maxDeaths = 10

// suspectLimit is how long a suspect blocks other suspects. A suspect that runs longer may hang,
// but a function that hangs does not kill the process.
const suspectLimit = 10 * time.Second

// turns is a semaphore for one suspect in this process, whatever pool the suspect uses.
var turns = make(chan struct{}, 1)

// turn is the right to work on a suspect: see the comment above maxDeaths.
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

// end releases the turn, so that another suspect can take it. It may be called several times, and
// on nil.
func (t *turn) end() {
	if t != nil {
		t.once.Do(func() { <-turns })
	}
}

// holdTurn keeps the turn t until the operation is released, but no longer than suspectLimit.
func (w *work) holdTurn(t *turn) {
	w.turn = t
	time.AfterFunc(suspectLimit, t.end)
}

// journal is the recorded state of an operation. It is loaded when a process claims the operation,
// and each commit of a run adds to it.
type journal struct {
	rows     map[int]db.Step    // the rows of the operation by position; the steps of the function come first, from 1 and without gaps
	steps    int                // the number of steps of the function
	undos    map[string]db.Step // the rows of undos that were begun or done, by their names: see undoName
	end      *db.Step           // the row of the error or rejection in which the operation ends; nil if there is none
	last     int                // the highest position of all rows
	resolved map[int]bool       // the positions of steps whose value a person has given

	undoing        bool // the decision to undo the operation is recorded
	canceled       bool
	withoutCalling bool // the operation was canceled WithoutCalling: no call in doubt is repeated
	withoutCode    bool // the operation was canceled WithoutCode: recorded steps that the code does not ask for are skipped
	runs           int  // the number of runs since the last progress, or since Cancel
	replays        bool // the journal is a history of Replay: no step may be executed
}

func newJournal(rows []db.Step) journal {
	j := journal{rows: make(map[int]db.Step, len(rows)), undos: map[string]db.Step{}, resolved: map[int]bool{}}
	for _, s := range rows {
		if s.Outcome == db.StepResolved {
			s.Outcome = db.StepDone
			j.resolved[s.Seq] = true
		}
		j.add(s)
	}
	return j
}

// add adds the row s, or replaces the row at the position of s.
func (j *journal) add(s db.Step) {
	j.rows[s.Seq] = s
	j.last = max(j.last, s.Seq)
	switch s.Kind {
	case db.UndoStep:
		j.undos[s.Name] = s
	case db.EndStep:
		j.end = &s
	default:
		j.steps = max(j.steps, s.Seq)
	}
}

// unwinding reports whether the operation is being undone. The function then stops after its last
// recorded step, and the undos of the done steps run.
func (j *journal) unwinding() bool { return j.undoing || j.canceled }

// recordedAfter returns the first recorded step after a position, or nil if there is none. While
// the operation is being undone, recordedAfter skips calls that were never sent.
func (j *journal) recordedAfter(seq int) *db.Step {
	for seq++; seq <= j.steps; seq++ {
		if s := j.rows[seq]; s.Outcome != db.StepNotSent || !j.unwinding() {
			return &s
		}
	}
	return nil
}

// undosChanged reports whether the running code lacks the recorded undos of the step s. The
// parameter undos is the number of undos that the code has for s. The code must have at least the
// recorded number. Once an undo of s or of an earlier step has begun, the code must have exactly
// the recorded number.
func (j *journal) undosChanged(s *db.Step, undos int) bool {
	return s.Outcome == db.StepDone && (undos < s.Undos || undos > s.Undos && j.reachedByUndos(s.Seq))
}

// reachedByUndos reports whether an undo of the step at a position, or of an earlier step, has
// begun. The undos of a step run in reverse order, so the last undo of the step begins first.
func (j *journal) reachedByUndos(seq int) bool {
	for ; seq > 0; seq-- {
		s := j.rows[seq]
		if _, begun := j.undos[undoName(s.Name, s.Undos-1)]; begun && s.Undos > 0 {
			return true
		}
	}
	return false
}

// undoName returns the name of the row of an undo. step is the step that is undone. index, from 0,
// is the position of the undo among the undos of the step.
func undoName(step string, index int) string {
	if index == 0 {
		return step
	}
	return fmt.Sprintf("%s##%d", step, index+1)
}

// splitUndoName returns the arguments of undoName from its result.
func splitUndoName(name string) (step string, index int) {
	step, number, numbered := strings.Cut(name, "##")
	if numbered {
		_, _ = fmt.Sscan(number, &index)
		index--
	}
	return step, index
}

// undoPlan reads the rows of an operation. It returns two lists of steps: undos has the steps whose
// undos are still to run, in the order of running. kept has the done steps that have no undo.
func undoPlan(rows []db.Step) (undos, kept []string) {
	undone := map[string]bool{}
	for _, s := range rows {
		if s.Kind == db.UndoStep && s.Outcome == db.StepDone {
			undone[s.Name] = true
		}
	}
	for i := len(rows) - 1; i >= 0; i-- {
		s := &rows[i]
		done := s.Outcome == db.StepDone || s.Outcome == db.StepResolved
		if !done || s.Kind != db.TxStep && s.Kind != db.CallStep && s.Kind != db.ChildStep {
			continue
		}
		if s.Undos == 0 {
			kept = append([]string{s.Name}, kept...)
		}
		for index := s.Undos - 1; index >= 0; index-- {
			if !undone[undoName(s.Name, index)] {
				undos = append(undos, s.Name)
			}
		}
	}
	return undos, kept
}

// clock converts times of the database's clock to times of this process's clock.
type clock struct {
	loadedAt time.Time // when the journal was read, by the database's clock
	loaded   time.Time // when the journal was read, by the clock of this process
}

// local converts a time of the database's clock to the clock of this process. The result has a
// monotonic reading, so later changes of the wall clock do not matter.
func (c clock) local(moment time.Time) time.Time { return c.loaded.Add(moment.Sub(c.loadedAt)) }
