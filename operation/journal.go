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

// action is what a run does next, when the function asks for a step or has ended.
type action int

const (
	replay action = iota // the step returns its recorded outcome
	run                  // the step is executed
	settle               // the call is in doubt: its policy says what to do
	wait                 // the run waits for the end of a pause, a signal or a child
	unwind               // the function does not continue, and the done steps are undone
	finish               // the answer is recorded
	retry                // the run has failed, and another run follows
	park                 // a person must decide
)

// request describes the step that the function of an operation asks for, or the end of the
// function.
type request struct {
	seq    int         // the position of the step; at the end of the function, the position of the last step
	kind   db.StepKind // empty at the end of the function
	name   string      // the name of the step, with a suffix such as "#2" if the name is repeated
	policy string      // the policy of a call in its stored form
	undos  int         // the number of undos of the step
	exit   exit        // how the function has ended

	invalid error // the error of an invalid step; decide does not read it
}

// exit is how the function of an operation has ended a run.
type exit int

const (
	exitAnswered exit = iota // the function has returned a response
	exitFinal                // the function has returned a rejection or a Final error, or the run has stopped because the operation is being undone
	exitFailed               // the function has returned any other error, which does not end the operation
)

// decision says what a run does about a request.
type decision struct {
	do       action
	recorded *db.Step // the row at the position of the request; nil if there is none
	stop     *stop    // why the operation parks; nil for other actions
}

func parkAt(step string, reason Reason, format string, args ...any) decision {
	return decision{do: park, stop: parked(step, reason, format, args...)}
}

// maxCanceledRuns limits the runs of a canceled operation whose function fails before its last
// recorded step. After that many runs the operation parks. If it was canceled WithoutCode, the
// steps that the function has reached are undone instead.
const maxCanceledRuns = 8

// decide returns what a run does about the request r, given the journal j. It is a pure function,
// so that Replay can use it as well. It does not know about the open transaction, the end of the
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
	case j.unwinding() && s.Outcome == db.StepNotSent && j.recordedAfter(r.seq) != nil: // an older version of the code made this call and the later ones in parallel
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

// decideDoubt decides about a call in doubt. If the operation is not canceled, the policy of the
// call decides. A canceled operation asks the other system about an Asked call. It repeats a Keyed
// call only if the step has an undo, and Cancel was not WithoutCalling. In all other cases the
// operation parks.
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
	case r.exit == exitFailed: // the operation is canceled, so next is not nil: see the first case
		return parkAt(next.Name, ReasonFunctionFailed, "the operation was canceled, and its function has failed %d times before the recorded step %q: "+
			"Retry it with code that does not fail, or Cancel it WithoutCode, which does not undo that step and later ones", j.runs, next.Name)
	case next != nil:
		return parkAt(next.Name, ReasonCodeChanged, "the code has changed: it no longer asks for step %q, which is recorded", next.Name)
	case r.exit == exitAnswered:
		return decision{do: finish}
	}
	return decision{do: unwind}
}

// unwindWithoutRest returns the decision to undo an operation that was canceled WithoutCode. The
// step at the given position and all later steps are not undone. If one of these steps is a call in
// doubt, the operation parks instead.
func unwindWithoutRest(j *journal, from int) decision {
	for seq := from; seq <= j.steps; seq++ {
		if s := j.rows[seq]; s.Outcome == db.StepBegun {
			return parkAt(s.Name, ReasonCallInDoubt, "the operation was canceled without its code, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
		}
	}
	return decision{do: unwind}
}
