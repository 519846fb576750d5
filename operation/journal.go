package operation

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// journal is the record of an operation as a run knows it. It is loaded once for each run, and the
// commits of the run add to it.
type journal struct {
	steps map[int]db.Step    // steps of the function by their positions, which begin at 1 and have no gap
	undos map[string]db.Step // begun or done, by the names of their rows
	end   *db.Step           // the error or the rejection in which the operation ends; nil if that is not decided, or Cancel ends it
	last  int                // the highest position of all rows
	given map[int]bool       // steps whose value a person has given

	undoing        bool // it is decided that the operation is undone
	canceled       bool
	withoutCalling bool // Cancel may not repeat a call in doubt
	withoutCode    bool // Cancel leaves steps that the code does not ask for
	runs           int  // runs that began since the last progress, or since Cancel
	replays        bool // it is a history, and no step may be taken: see Replay
}

func newJournal(rows []db.Step) journal {
	j := journal{steps: make(map[int]db.Step, len(rows)), undos: map[string]db.Step{}, given: map[int]bool{}}
	for _, s := range rows {
		if s.Outcome == db.StepResolved {
			s.Outcome = db.StepDone
			j.given[s.Seq] = true
		}
		j.add(s)
	}
	return j
}

// add adds a row, or replaces it.
func (j *journal) add(s db.Step) {
	j.last = max(j.last, s.Seq)
	switch s.Kind {
	case db.UndoStep:
		j.undos[s.Name] = s
	case db.EndStep:
		j.end = &s
	default:
		j.steps[s.Seq] = s
	}
}

// row returns the row at a position, of whatever kind.
func (j *journal) row(seq int) (db.Step, bool) {
	if s, ok := j.steps[seq]; ok {
		return s, true
	}
	for _, s := range j.undos {
		if s.Seq == seq {
			return s, true
		}
	}
	if j.end != nil && j.end.Seq == seq {
		return *j.end, true
	}
	return db.Step{}, false
}

// unwinding reports whether the function is run no further than its last recorded step, and what is
// done is undone.
func (j *journal) unwinding() bool { return j.undoing || j.canceled }

// left returns the first recorded step behind a position, nil if there is none. While the operation
// unwinds, a call that was never sent is as if it was not recorded.
func (j *journal) left(seq int) *db.Step {
	for seq++; seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome != db.StepNotSent || !j.unwinding() {
			return &s
		}
	}
	return nil
}

// inDoubt returns the first call of the function, from a position on, that was begun and has no
// recorded outcome.
func (j *journal) inDoubt(from int) *db.Step {
	for seq := max(from, 1); seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome == db.StepBegun {
			return &s
		}
	}
	return nil
}

// undosChanged reports whether the undos of the running code cannot take the place of the recorded
// ones: there are fewer, or there is another number than when the first of them was begun.
func (j *journal) undosChanged(s *db.Step, undos int) bool {
	_, begun := j.undos[undoName(s.Name, s.Undos-1)]
	return s.Outcome == db.StepDone && (undos < s.Undos || undos > s.Undos && begun)
}

// undoName returns the name of the row of an undo. index is its position among the undos of its
// step, from 0.
func undoName(step string, index int) string {
	if index == 0 {
		return step
	}
	return fmt.Sprintf("%s##%d", step, index+1)
}

// splitUndoName returns the step and the index of the name of an undo.
func splitUndoName(name string) (step string, index int) {
	step, number, numbered := strings.Cut(name, "##")
	if numbered {
		_, _ = fmt.Sscan(number, &index)
		index--
	}
	return step, index
}

// undoPlan returns which undos are still to run, in their order, and which steps that are done are
// kept, by the rows of an operation.
func undoPlan(rows []db.Step) (undos, kept []string) {
	done := map[string]bool{}
	for _, s := range rows {
		if s.Kind == db.UndoStep && s.Outcome == db.StepDone {
			done[s.Name] = true
		}
	}
	for i := len(rows) - 1; i >= 0; i-- {
		s := &rows[i]
		if !isDone(s.Outcome) || s.Kind != db.TxStep && s.Kind != db.CallStep && s.Kind != db.ChildStep {
			continue
		}
		if s.Undos == 0 {
			kept = append([]string{s.Name}, kept...)
		}
		for index := s.Undos - 1; index >= 0; index-- {
			if !done[undoName(s.Name, index)] {
				undos = append(undos, s.Name)
			}
		}
	}
	return undos, kept
}

func isDone(o db.StepOutcome) bool { return o == db.StepDone || o == db.StepResolved }

// clock tells how long ago moments of the database's clock were.
type clock struct {
	loadedAt time.Time // when the journal was read, by the clock of the database
	loaded   time.Time // and by that of this process
}

// until returns how long it is until a moment of the database's clock.
func (c clock) until(due time.Time) time.Duration {
	return due.Sub(c.loadedAt) - time.Since(c.loaded)
}

// since returns a function that tells how long ago a moment of the database's clock was.
func (c clock) since(begun time.Time) func() time.Duration {
	return func() time.Duration { return -c.until(begun) }
}

// Reason is why an operation is parked, as a code for programs and alerts.
// docs/operations-reference.md says what to do about each.
type Reason string

// The reasons.
const (
	ReasonCallInDoubt       Reason = "call_in_doubt"      // a call may have happened, and its policy does not allow to repeat it
	ReasonAttemptsExhausted Reason = "attempts_exhausted" // a call or an undo had all its attempts, or its deadline, and may have happened
	ReasonCodeChanged       Reason = "code_changed"       // the code asks for another step than the recorded one
	ReasonValueUnreadable   Reason = "value_unreadable"   // a recorded value does not decode, or the value of a call cannot be stored
	ReasonSignalUnreadable  Reason = "signal_unreadable"  // a signal does not decode
	ReasonUndoFailed        Reason = "undo_failed"        // an undo has failed for good
	ReasonTxEnded           Reason = "tx_ended"           // the fn of a step has ended its transaction
	ReasonFunctionFailed    Reason = "function_failed"    // it was canceled, and its function fails before its last recorded step
	ReasonTooManyDeaths     Reason = "too_many_deaths"    // too many processes have died while they worked on it
)

// action is what follows from the journal for a step, or for the end of the function.
type action int

const (
	replay action = iota // the recorded outcome is the outcome
	run                  // the step is taken
	settle               // a call is in doubt: its policy says what to do
	wait                 // a pause, a signal or a child
	unwind               // the function is run no further, and what is done is undone
	finish               // the answer is recorded
	retry                // the run has failed, and another one follows
	park                 // a person decides
)

// request is what the function of an operation asks for: a step, or its end.
type request struct {
	seq    int
	kind   db.StepKind // empty: the function has ended, and seq is the position of the last step that it has asked for
	name   string
	policy string // of a call, as it is stored
	undos  int    // how many the step has
	end    ending // how the function has ended

	invalid error // why the step cannot be taken; decide does not look at it
}

// ending is how a function has ended.
type ending int

const (
	endAnswered ending = iota
	endFinal           // by a rejection or a Final error, or because the run was stopped to unwind
	endFailed          // by any other error, which decides nothing
)

// verdict is what decide says.
type verdict struct {
	do     action
	step   *db.Step // recorded at the position of the request, if there is any
	reason Reason   // of park
	at     string   // the step at which the operation parks
	text   string
}

func parkAt(step string, reason Reason, format string, args ...any) verdict {
	return verdict{do: park, at: step, reason: reason, text: fmt.Sprintf(format, args...)}
}

// maxCanceledRuns is how many runs a canceled operation gets whose function fails before it has
// reached the last recorded step. Behind them the operation parks, or unwinds if it was canceled
// WithoutCode.
const maxCanceledRuns = 8

// decide returns what follows from the journal for a request. It has no effect, and serves runs,
// Cancel and Replay. What it cannot know is added by its callers: an open transaction, the end of a
// context, and undos in doubt.
func decide(j *journal, r request) verdict {
	if r.kind == "" {
		return decideEnd(j, r)
	}
	s, recorded := j.steps[r.seq]
	switch {
	case !recorded && j.unwinding():
		return verdict{do: unwind}
	case !recorded:
		return verdict{do: run}
	case (s.Kind != r.kind || s.Name != r.name) && j.withoutCode:
		return leaveRest(j, r.seq)
	case s.Kind != r.kind || s.Name != r.name:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %d is recorded as %s %q, and the code asks for %s %q", s.Seq, s.Kind, s.Name, r.kind, r.name)
	case j.unwinding() && j.undosChanged(&s, r.undos) && !j.withoutCode:
		return parkAt(s.Name, ReasonCodeChanged, "the code has changed: step %q is recorded with %d undos, and the code has %d: Retry it with code that has as many, "+
			"or Cancel it WithoutCode, which runs those that the code has", s.Name, s.Undos, r.undos)
	}
	return decideOutcome(j, r, &s)
}

// decideOutcome decides about a recorded step by its outcome.
func decideOutcome(j *journal, r request, s *db.Step) verdict {
	switch s.Outcome {
	case db.StepBegun:
		return decideDoubt(j, r, s)
	case db.StepNotSent:
		if j.unwinding() {
			return verdict{do: unwind, step: s}
		}
		return verdict{do: run, step: s}
	case db.StepWaiting:
		switch {
		case s.Kind == db.SleepStep && r.seq < len(j.steps): // it is over
			return verdict{do: replay, step: s}
		case s.Kind != db.ChildStep && j.unwinding():
			return verdict{do: unwind, step: s}
		}
		return verdict{do: wait, step: s}
	}
	return verdict{do: replay, step: s}
}

// decideDoubt decides about a call in doubt. A canceled operation asks about an Asked call, and
// repeats a Keyed call only if the step has an undo and Cancel did not forbid to call. It parks at
// any other call in doubt.
func decideDoubt(j *journal, r request, s *db.Step) verdict {
	switch {
	case !j.canceled || r.policy == "" || r.policy == db.PolicyAsked:
		return verdict{do: settle, step: s}
	case r.policy == db.PolicyOnce:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled, step %q may have happened, and it must not happen twice: ask the other side, and Resolve the step", s.Name)
	case r.undos == 0:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled, step %q may have happened, and it has no undo: ask the other side, and Resolve the step", s.Name)
	case j.withoutCalling:
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled without calling, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
	}
	return verdict{do: settle, step: s}
}

// decideEnd decides what follows from the end of the function.
func decideEnd(j *journal, r request) verdict {
	left := j.left(r.seq) // not nil in the cases of a canceled operation behind the first one
	switch {
	case j.unwinding() && left == nil:
		return verdict{do: unwind}
	case r.end == endFailed && (!j.canceled || j.runs < maxCanceledRuns):
		return verdict{do: retry}
	case j.withoutCode:
		return leaveRest(j, r.seq+1)
	case r.end == endFailed:
		return parkAt(left.Name, ReasonFunctionFailed, "it was canceled, and its function has failed %d times before it asks for step %q, which is recorded: "+
			"Retry it with code that does not, or Cancel it WithoutCode, which leaves the steps from there on as they are", j.runs, left.Name)
	case left != nil:
		return parkAt(left.Name, ReasonCodeChanged, "the code has changed: it no longer asks for step %q, which is recorded", left.Name)
	case r.end == endAnswered:
		return verdict{do: finish}
	}
	return verdict{do: unwind}
}

// leaveRest unwinds an operation, but leaves the steps from a position on as they are. The
// operation parks if one of those is a call in doubt.
func leaveRest(j *journal, from int) verdict {
	if s := j.inDoubt(from); s != nil {
		return parkAt(s.Name, ReasonCallInDoubt, "it was canceled without its code, and step %q may have happened: ask the other side, and Resolve the step", s.Name)
	}
	return verdict{do: unwind}
}
