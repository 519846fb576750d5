package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkMoves checks each move after which no process owned the operation. By then, the answers of
// the bank must be recorded. If the move parked the operation, its reason must be true.
func (b *book) checkMoves(o *operation) {
	for i, m := range o.moves {
		if m.Owner == 0 && (m.State == "running" || m.State == "parked") {
			b.checkKept(o, i)
		}
		if m.State != "parked" {
			continue
		}
		if m.Reason == tooManyDeaths {
			if m.Deaths < maxDeaths {
				b.violates(o, rule.Reason, "parked after %d deaths, and the limit is %d", m.Deaths, maxDeaths)
			}
			if blamed := o.blamed(i); blamed < m.Deaths {
				b.violates(o, rule.Innocent, "parked after %d deaths, and %d of these have failed, or ended without a word", m.Deaths, blamed)
			}
		} else if why := o.parkedWrongly(m); why != "" {
			b.violates(o, rule.Reason, "%s at %q: %s", m.Reason, m.ReasonStep, why)
		} else {
			b.checkWaited(o, i)
		}
	}
}

// checkKept checks move i, with which a process released the operation. Every answer of the bank
// that the process got while it owned the operation must be recorded by then. A process that was
// hit by a fault in that time is not judged: it may have tried to record the answer in vain.
func (b *book) checkKept(o *operation, i int) {
	given := o.moves[i]
	// Find the move with which the same process claimed the operation.
	for i--; i >= 0; i-- {
		m := o.moves[i]
		if m.By != given.By || m.Epoch != given.Epoch {
			return // a person or another process moved it in between
		}
		if m.Owner != 0 {
			break
		}
	}
	if i < 0 {
		return
	}
	for _, e := range o.heard {
		outcome := given.Known[e.Name]
		kept := outcome != "" && !isOpen(outcome)
		heard := e.Op.Process() == given.By && o.moves[i].At < e.At && e.At < given.At && o.isAnswer(e)
		if heard && !kept && !o.isRunTwice(e) && !b.harmed(&e, e.At, given.At) {
			b.violates(o, rule.Kept, "%v has heard %q of %s, and gave the operation up at %v without that on record",
				e.Op, e.Value, e.Name, given.At-b.options.Start)
			return
		}
	}
}

// isRunTwice reports whether the process ran the operation in both of its pools when the bank
// answered. One of the two runs had lost the operation and could not record the answer.
func (o *operation) isRunTwice(heard journal.Event) bool {
	return slices.ContainsFunc(o.runs, func(r run) bool {
		return r.op != heard.Op && r.op.Process() == heard.Op.Process() && r.begin < heard.At && (heard.At < r.end || r.end == 0)
	})
}

// checkWaited checks move i if it parked a canceled operation because a call is in doubt. A run
// that was in progress at the time of Cancel had to wait for the bank and record its answer. So it
// is a violation if such a run got the answer to the call. A process that exited before the
// operation was parked is not judged.
func (b *book) checkWaited(o *operation, i int) {
	call := o.moves[i].ReasonStep
	if o.moves[i].Reason != callInDoubt || isOfUndo(o.moves[i]) {
		return
	}
	for c := i - 1; c > 0; c-- {
		owner, cancel := o.moves[c-1], o.moves[c]
		if !cancel.Canceled || owner.Canceled || owner.Owner == 0 {
			continue
		}
		for _, e := range o.heard {
			r := o.run(e.Op)
			inProgress := r.begin < cancel.At && cancel.At < r.end && b.alive[owner.By] >= o.moves[i].At
			if e.Name == call && e.Op.Process() == owner.By && owner.At < e.At && inProgress && o.isAnswer(e) &&
				!b.harmed(&e, r.begin, o.moves[i].At) && !o.isTakenInVain(c, i) {
				b.violates(o, rule.Waits, "%v has heard %q of %s, for which it was parked after it was canceled at %v", e.Op, e.Value, e.Name, cancel.At-b.options.Start)
				return
			}
		}
	}
}

// isAnswer reports whether a run had to treat the event as an answer of the bank. If the context of
// the run had ended, an error is no answer, because the end of the context may have caused it.
func (o *operation) isAnswer(heard journal.Event) bool {
	return heard.Value != journal.Declined || !o.run(heard.Op).left
}

// isTakenInVain reports whether, between the two moves, a process claimed the operation and did not
// run it, because the answer to its claim was lost.
func (o *operation) isTakenInVain(from, to int) bool {
	for k := from + 1; k < to; k++ {
		m, until := o.moves[k], o.moves[k+1].At
		ran := slices.ContainsFunc(o.runs, func(r run) bool { return r.op.Process() == m.By && m.At-clocks < r.begin && r.begin < until })
		if m.Owner != 0 && m.Epoch != o.moves[k-1].Epoch && !ran {
			return true
		}
	}
	return false
}

// harmed reports whether a fault affected the worker that logged the event, in the given period or
// shortly before it.
func (b *book) harmed(e *journal.Event, from, until time.Duration) bool {
	return slices.ContainsFunc(b.options.Faults, func(f fault.Event) bool {
		return (f.Worker == e.Op.Slot() || f.Worker < 0 || f.EndsLeases && e.Pooled) && f.At < until && from < f.At+f.For+settled
	})
}

// run returns the run with the id, or the zero run.
func (o *operation) run(op history.Op) (found run) {
	for _, r := range o.runs {
		if r.op == op {
			found = r
		}
	}
	return found
}

// blamed returns how many attempts before move i count against the operation: its function failed,
// or the process died without an end event. It goes back to the latest attempt with the number 1,
// because progress of the operation resets that number.
func (o *operation) blamed(i int) (times int) {
	until := o.moves[i].At
	for i--; i >= 0; i-- {
		m := o.moves[i]
		if m.Owner == 0 {
			continue
		}
		if o.isBlamed(m, until) {
			times++
		}
		until = m.At
		if m.Attempts <= 1 {
			break
		}
	}
	return times
}

// isBlamed reports whether the attempt that began with the given claim failed or has no end event.
// It also reports true if the process died before it called the operation's function.
func (o *operation) isBlamed(taken *journal.Move, until time.Duration) bool {
	for _, r := range o.runs {
		if r.op.Process() == taken.By && taken.At-clocks < r.begin && r.begin < until {
			return r.failed || r.end == 0
		}
	}
	return true // it died before the run began
}

// The reason codes of parked operations that this workload can produce.
const (
	callInDoubt    = "call_in_doubt"
	codeChanged    = "code_changed"
	undoFailed     = "undo_failed"
	functionFailed = "function_failed"
	tooManyDeaths  = "too_many_deaths"
)

// maxDeaths is the number of deaths in a row after which the library parks an operation. A death is
// an attempt whose process died.
const maxDeaths = 10

// isOfUndo reports whether m parked the operation at the undo of a step, not at the step itself.
// The step itself is recorded as done in that case.
func isOfUndo(m *journal.Move) bool { return isDone(m.Known[m.ReasonStep]) }

// parkedWrongly returns why the reason of a parked operation cannot be true, or "" if it can be
// true.
func (o *operation) parkedWrongly(m *journal.Move) string {
	switch m.Reason {
	case codeChanged:
		return o.changedWrongly(m)
	case functionFailed:
		return o.parkedFailing(m, m.ReasonStep)
	case undoFailed:
		if !slices.ContainsFunc(o.plan.Rounds, func(r journal.Round) bool { return r.Day.Refuses }) {
			return "no undo fails"
		}
		return ""
	case callInDoubt:
		return o.doubtedWrongly(m)
	}
	return "nothing of that kind has happened"
}

// changedWrongly returns why the reason code_changed cannot be true, or "" if it can be true. The
// step must be recorded or in progress, and the releases of the code must differ.
func (o *operation) changedWrongly(m *journal.Move) string {
	switch {
	case !o.plan.Changes():
		return "no release differs from another one"
	case m.Known[m.ReasonStep] == "" && m.Step != m.ReasonStep:
		return "the step is neither on record nor under way"
	}
	return ""
}

// doubtedWrongly returns why the reason call_in_doubt cannot be true, or "" if it can be true. A
// call may wait for a person in these cases only:
//
//   - It is Once, or it is Keyed and its window has passed.
//   - The operation was canceled WithoutCode.
//   - The operation was canceled, the call is Keyed, and it has no undo or the person chose
//     WithoutCalling.
func (o *operation) doubtedWrongly(m *journal.Move) string {
	step := m.ReasonStep
	policy, window, undos, ok := o.policyOf(step)
	if isOfUndo(m) {
		step, undos = journal.UndoOf(step, 0), 0
		policy, window = o.undoPolicyOf(m.ReasonStep), journal.LongWindow
	}
	lasted := m.At - m.Since
	switch {
	case !ok:
		return "there is no such call"
	case m.Known[step] != "" && !isOpen(m.Known[step]):
		return "it is on record"
	case policy == journal.Once, policy == journal.Keyed && lasted > window-clocks:
		return ""
	case m.Canceled && m.WithoutCode:
		return ""
	case m.Canceled && policy == journal.Keyed && !isOfUndo(m) && (undos == 0 || m.WithoutCalling):
		return ""
	}
	return fmt.Sprintf("the call is %s, with a window of %v and %d undos, and took %v", policy, window, undos, lasted)
}

// policyOf returns the policy and the window of a call, and the lowest number of undos that any
// release gives it. It returns false if no release has the call.
func (o *operation) policyOf(call string) (policy journal.Safety, window time.Duration, undos int, ok bool) {
	undos = o.known[0][call]
	for _, steps := range o.known {
		if n, has := steps[call]; has {
			undos, ok = min(undos, n), true
		}
	}
	if round := o.roundOf(call); round != nil {
		return round.Call, round.Window, undos, true
	}
	if ok { // an inserted call, a second charge, or a child
		return journal.Keyed, journal.LongWindow, undos, true
	}
	return "", 0, 0, false
}

// undoPolicyOf returns the policy of the call that undoes the step.
func (o *operation) undoPolicyOf(step string) journal.Safety {
	for i := range o.plan.Rounds {
		round, n := &o.plan.Rounds[i], i+1
		if o.isPart(step, round, n) {
			return round.Part.Safety
		}
		for release := range journal.Releases {
			if charge := round.ChargeIn(release, n); slices.Contains([]string{charge, round.Card(n), journal.Beside(charge), journal.Beside(round.Card(n))}, step) {
				return round.Refund
			}
		}
	}
	return ""
}

// parkedFailing returns why the reason function_failed cannot be true, or "" if it can be true. The
// operation must have been canceled, its last run must have failed, and the step must be recorded
// or in progress.
func (o *operation) parkedFailing(m *journal.Move, step string) string {
	failed := false
	var last time.Duration
	for _, r := range o.runs {
		if last <= r.begin && r.begin < m.At {
			last, failed = r.begin, r.failed
		}
	}
	switch {
	case !m.Canceled:
		return "it was not canceled"
	case m.Known[step] == "" && m.Step != step:
		return "there is no such step on record"
	case !failed:
		return "its last run has not failed"
	}
	return ""
}

// isOpen reports whether a recorded outcome means that the call has no result yet. The library
// records calls in this way when it makes several calls at the same time.
func isOpen(outcome string) bool { return outcome == "begun" || outcome == "not sent" }

// roundOf returns the round whose charge has the given name in any release, or nil.
func (o *operation) roundOf(call string) *journal.Round {
	for i := range o.plan.Rounds {
		round, n := &o.plan.Rounds[i], i+1
		for release := range journal.Releases {
			if round.Call != "" && (call == round.ChargeIn(release, n) || call == round.Card(n)) {
				return round
			}
		}
	}
	return nil
}

// process returns the identifier of the process in the form in which histories print it.
func process(by uint32) history.Op { return history.Op(uint64(by) << 32) }

// settled is the time within which every process notices that a fault has affected it.
const settled = time.Second

// checkOwners checks that no process begins to run an operation while another process runs it. It
// judges only the calm period after the faults, and only processes with direct sessions. A process
// behind a pooler has a lease instead, which a fault may have ended.
func (b *book) checkOwners(o *operation) {
	if o.row.Canceled { // the owner notices a cancellation with its next commit
		return
	}
	for _, first := range o.runs {
		for _, second := range o.runs {
			if first.pooled || second.pooled || first.op.Process() == second.op.Process() || first.end == 0 {
				continue
			}
			calm := first.begin > b.options.Calm+settled
			if calm && first.begin < second.begin && second.begin < first.end && !o.isGivenUp(&first, second.begin) {
				b.violates(o, rule.OneWorker, "%v was begun while %v ran", second.op, first.op)
				return
			}
		}
	}
}

// isGivenUp reports whether the process of the run had released the operation at the given time,
// for example to wait for a child. The function may return later than that.
func (o *operation) isGivenUp(r *run, by time.Duration) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.Owner == 0 && m.By == r.op.Process() && r.begin < m.At && m.At < by+clocks
	})
}

// noticed limits how long an operation may stay idle after a claim whose answer was lost. Every
// five seconds, a process looks for operations that it owns but does not run. On a slow machine
// this check and the start of a run take longer. So checkWoken adds twice the longest time that any
// claim took until its run began.
const noticed = 7 * time.Second

// checkWoken checks that a claimed operation is run, or claimed again, within a limit. It judges
// the calm period, in which the only injected fault is the loss of answers to claims.
//
// An idle operation is a violation only if its owner ran another operation after the limit. If it
// did not, the machine may not have scheduled the owner. If the owner has died, a run of any
// process counts instead.
func (b *book) checkWoken() {
	var longest time.Duration
	b.eachTaking(func(_ *operation, m *journal.Move, run, _ time.Duration) {
		if run > 0 {
			longest = max(longest, run-m.At)
		}
	})
	limit := noticed + 2*longest
	b.eachTaking(func(o *operation, m *journal.Move, run, until time.Duration) {
		due := m.At + limit
		begun := b.begun[m.By]
		if b.alive[m.By] < due {
			for _, at := range b.begun {
				begun = max(begun, at)
			}
		}
		if run == 0 && until > due && begun > due {
			b.violates(o, rule.Woken, "%v claimed it at %v and did not work on it until %v, though other work was begun then",
				process(m.By), m.At-b.options.Start, until-b.options.Start)
		}
	})
}

// eachTaking calls visit for each claim that a live process made in the calm period. It passes the
// time at which the process began to run the operation, or 0 if it did not. It also passes the time
// up to which the process could keep the operation: that of the next move, or earlier in these
// cases:
//
//   - The process died and is behind a pooler. Other processes wait until its lease has expired.
//   - The process died and no Worker knows the operation (WalkIn). Only a caller can take it over,
//     and there may be none.
//   - The operation is a WalkIn, or its next claim is delayed after several deaths (Rest > 0): only
//     up to the last claim of the same owner. After that, the process may have lost its owner
//     number and cannot release the operation, and other processes need not claim it soon.
func (b *book) eachTaking(visit func(o *operation, m *journal.Move, run, until time.Duration)) {
	seen := b.ownersSeen()
	for _, o := range b.operations {
		for i, m := range o.moves {
			// A claim that the server executed after its process was killed is skipped: that process
			// cannot run the operation.
			if m.Owner == 0 || m.Attempts == 0 || m.At < b.options.Calm || m.At > b.options.Stop || b.alive[m.By] < m.At {
				continue
			}
			until := b.options.Stop
			if i+1 < len(o.moves) {
				until = min(until, o.moves[i+1].At)
			}
			if gone := b.alive[m.By]; gone < until && (m.Pooled || o.plan.WalkIn) {
				until = gone
			}
			if o.plan.WalkIn || m.Rest > 0 {
				until = min(until, seen[m.Owner])
			}
			var begun time.Duration
			for _, r := range o.runs {
				if m.At-clocks < r.begin && r.begin < until && r.op.Process() == m.By {
					begun = r.begin
				}
			}
			visit(o, m, begun, until)
		}
	}
}

// ownersSeen returns the time of the last claim by each owner number.
func (b *book) ownersSeen() map[int]time.Duration {
	seen := map[int]time.Duration{}
	for _, o := range b.operations {
		for _, m := range o.moves {
			if m.Owner != 0 {
				seen[m.Owner] = max(seen[m.Owner], m.At)
			}
		}
	}
	return seen
}
