package operation

import (
	"github.com/idem-go/idem/internal/db"
)

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
