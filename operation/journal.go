package operation

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// journal is the recorded state of an operation. It is loaded when a process claims the operation,
// and each commit of a run adds to it.
type journal struct {
	rows     map[int]db.Step    // all rows by position: first the steps of the function, from 1 and without gaps
	steps    int                // the number of steps of the function
	undos    map[string]db.Step // undos that were begun or done, by the names of their rows: see undoName
	end      *db.Step           // the error or rejection in which the operation ends; nil if undecided, or if Cancel ends it
	last     int                // the highest position of all rows
	resolved map[int]bool       // steps whose value a person has given

	undoing        bool // the decision to undo the operation is recorded
	canceled       bool
	withoutCalling bool // Cancel may not repeat a call in doubt
	withoutCode    bool // Cancel skips recorded steps that the code does not ask for
	runs           int  // runs that began since the last progress, or since Cancel
	replays        bool // the journal is a history of Replay: no step may be taken
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

// add adds a row, or replaces the row at its position.
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

// unwinding reports whether the function must stop at its last recorded step, and the done steps
// are to be undone.
func (j *journal) unwinding() bool { return j.undoing || j.canceled }

// recordedAfter returns the first recorded step after a position, or nil. While the operation
// unwinds, a call that was never sent counts as not recorded.
func (j *journal) recordedAfter(seq int) *db.Step {
	for seq++; seq <= j.steps; seq++ {
		if s := j.rows[seq]; s.Outcome != db.StepNotSent || !j.unwinding() {
			return &s
		}
	}
	return nil
}

// undosChanged reports whether the running code cannot supply the undos of a done step as they were
// recorded. It must have at least as many. Once the undos of the step or of an earlier one have begun,
// it must have exactly as many.
func (j *journal) undosChanged(s *db.Step, undos int) bool {
	return s.Outcome == db.StepDone && (undos < s.Undos || undos > s.Undos && j.reachedByUndos(s.Seq))
}

// reachedByUndos reports whether the first undo of a step or of an earlier one was begun. Undos run
// in reverse, so the first one is the last undo of a step.
func (j *journal) reachedByUndos(seq int) bool {
	for ; seq > 0; seq-- {
		s := j.rows[seq]
		if _, begun := j.undos[undoName(s.Name, s.Undos-1)]; begun && s.Undos > 0 {
			return true
		}
	}
	return false
}

// undoName returns the name of the row of an undo. index is its position among the undos of its
// step, from 0.
func undoName(step string, index int) string {
	if index == 0 {
		return step
	}
	return fmt.Sprintf("%s##%d", step, index+1)
}

// splitUndoName returns the step and the index from the name of an undo's row.
func splitUndoName(name string) (step string, index int) {
	step, number, numbered := strings.Cut(name, "##")
	if numbered {
		_, _ = fmt.Sscan(number, &index)
		index--
	}
	return step, index
}

// undoPlan reads the rows of an operation. It returns the steps whose undos are still to run, in
// the order of the undos, and the done steps that have no undo.
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

// clock converts moments of the database's clock to this process's clock.
type clock struct {
	loadedAt time.Time // when the journal was read, by the database's clock
	loaded   time.Time // the same moment by the clock of this process
}

// local returns a moment of the database's clock by the clock of this process. The result has a
// monotonic reading, so later changes of the wall clock do not matter.
func (c clock) local(moment time.Time) time.Time { return c.loaded.Add(moment.Sub(c.loadedAt)) }

// action is what a run does next, for a step or at the end of the function.
type action int

const (
	replay action = iota // the step returns its recorded outcome
	run                  // the step is taken
	settle               // the call is in doubt: its policy says what to do
	wait                 // the run waits for a pause, a signal or a child
	unwind               // the function runs no further, and the done steps are undone
	finish               // the answer is recorded
	retry                // the run has failed, and another run follows
	park                 // a person must decide
)

// request is what the function of an operation asks for: a step, or its end.
type request struct {
	seq    int         // the position of the step; at the end of the function, of the last step it asked for
	kind   db.StepKind // empty at the end of the function
	name   string      // a repeated name has a number
	policy string      // of a call, as it is stored
	undos  int         // the number of undos of the step
	exit   exit        // how the function has ended

	invalid error // why the step cannot be taken; decide does not read it
}

// exit is how the function of an operation has ended a run.
type exit int

const (
	exitAnswered exit = iota // with a response
	exitFinal                // by a rejection or a Final error, or because the run was stopped to unwind
	exitFailed               // by any other error, which does not end the operation
)

// decision is what decide returns.
type decision struct {
	do       action
	recorded *db.Step // the row at the position of the request; nil if there is none
	stop     *stop    // only for park
}

func parkAt(step string, reason Reason, format string, args ...any) decision {
	return decision{do: park, stop: parked(step, reason, format, args...)}
}

// maxCanceledRuns is how many failing runs a canceled operation gets whose function does not reach
// its last recorded step. After them the operation parks, or unwinds if it was canceled
// WithoutCode.
const maxCanceledRuns = 8

// decide returns what a run does about a request, given the journal. It is a pure function, which
// runs, Cancel and Replay share. It does not know about the open transaction, the end of the
// context, or undos in doubt: its callers check these.
func decide(j *journal, r request) decision {
	if r.kind == "" {
		return decideEnd(j, r)
	}
	s, recorded := j.rows[r.seq]
	recorded = recorded && r.seq <= j.steps
	switch {
	case !recorded && j.unwinding():
		return decision{do: unwind}
	case !recorded:
		return decision{do: run}
	case (s.Kind != r.kind || s.Name != r.name) && j.withoutCode:
		return unwindWithoutRest(j, r.seq)
	case s.Kind != r.kind || s.Name != r.name:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %d is recorded as %s %q, and the code asks for %s %q", s.Seq, s.Kind, s.Name, r.kind, r.name)
	case j.unwinding() && j.undosChanged(&s, r.undos) && !j.withoutCode:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %q is recorded with %d undos, and the code has %d: Retry it with code that has as many, "+
			"or Cancel it WithoutCode, which runs the undos that the code has", s.Name, s.Undos, r.undos)
	}
	return decideRecorded(j, r, &s)
}

// decideRecorded decides about a step that has a row, by the outcome in the row.
func decideRecorded(j *journal, r request, s *db.Step) decision {
	slept := s.Kind == db.SleepStep && r.seq < j.steps // a later step is recorded, so the pause has ended
	waits, d := s.Outcome == db.StepWaiting && !slept, decision{do: replay, recorded: s}
	switch {
	case s.Outcome == db.StepBegun:
		return decideDoubt(j, r, s)
	case j.unwinding() && s.Outcome == db.StepNotSent && j.recordedAfter(r.seq) != nil: // older code has made these calls in parallel
		d.do = replay
	case j.unwinding() && (s.Outcome == db.StepNotSent || waits && s.Kind != db.ChildStep):
		d.do = unwind
	case s.Outcome == db.StepNotSent:
		d.do = run
	case waits:
		d.do = wait
	}
	return d
}

// decideDoubt decides about a call in doubt. A canceled operation asks about an Asked call. It
// repeats a Keyed call only if the step has an undo, and Cancel was not WithoutCalling. At any
// other call in doubt it parks.
func decideDoubt(j *journal, r request, s *db.Step) decision {
	switch {
	case !j.canceled || r.policy == "" || r.policy == db.PolicyAsked:
		return decision{do: settle, recorded: s}
	case r.policy == db.PolicyOnce:
		return parkAt(s.Name, ReasonCallInDoubt, "the operation was canceled, step %q may have happened, and it must not happen twice: ask the other side, and Resolve the step", s.Name)
	case r.undos == 0:
		return parkAt(s.Name, ReasonCallInDoubt, "the operation was canceled, step %q may have happened, and it has no undo: ask the other side, and Resolve the step", s.Name)
	case j.withoutCalling:
		return parkAt(s.Name, ReasonCallInDoubt, "the operation was canceled without calling, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
	}
	return decision{do: settle, recorded: s}
}

// decideEnd decides what follows when the function has ended. If recorded steps remain that the
// function did not ask for, the code has changed, or the function failed before it reached them.
func decideEnd(j *journal, r request) decision {
	next := j.recordedAfter(r.seq)
	switch {
	case j.unwinding() && next == nil:
		return decision{do: unwind}
	case r.exit == exitFailed && (!j.canceled || j.runs < maxCanceledRuns):
		return decision{do: retry}
	case j.withoutCode:
		return unwindWithoutRest(j, r.seq+1)
	case r.exit == exitFailed: // it was canceled, so next is not nil: see the first case
		return parkAt(next.Name, ReasonFunctionFailed, "the operation was canceled, and its function has failed %d times before the recorded step %q: "+
			"Retry it with code that does not fail, or Cancel it WithoutCode, which does not undo that step and later ones", j.runs, next.Name)
	case next != nil:
		return parkAt(next.Name, ReasonCodeChanged, "the code has changed: it no longer asks for step %q, which is recorded", next.Name)
	case r.exit == exitAnswered:
		return decision{do: finish}
	}
	return decision{do: unwind}
}

// unwindWithoutRest unwinds an operation that was canceled WithoutCode. The steps from a position
// on are not undone. If one of them is a call in doubt, the operation parks.
func unwindWithoutRest(j *journal, from int) decision {
	for seq := from; seq <= j.steps; seq++ {
		if s := j.rows[seq]; s.Outcome == db.StepBegun {
			return parkAt(s.Name, ReasonCallInDoubt, "the operation was canceled without its code, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
		}
	}
	return decision{do: unwind}
}
