package audit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkMoves checks what was on record whenever a process has given the operation up, and for which reasons it was parked.
func (b *book) checkMoves(o *operation) {
	for i, m := range o.moves {
		if m.Owner == 0 && (m.State == "running" || m.State == "parked") {
			b.checkKept(o, i)
		}
		if m.State != "parked" {
			continue
		}
		if m.Reason == tooManyDeaths {
			most := 0
			_, _ = fmt.Sscan(m.ReasonText, &most)
			if most < maxDeaths {
				b.violates(o, rule.Reason, "%s: the limit is %d", m.ReasonText, maxDeaths)
			}
			if blamed := o.blamed(i); blamed < most {
				b.violates(o, rule.Innocent, "%s: %d of these have failed, or ended without a word", m.ReasonText, blamed)
			}
		} else if why := o.parkedWrongly(m); why != "" {
			b.violates(o, rule.Reason, "%s at %q: %s: %s", m.Reason, m.ReasonStep, m.ReasonText, why)
		} else {
			b.checkWaited(o, i)
		}
	}
}

// checkKept checks the ith move, with which a process has given the operation up: what the bank has answered to it while it had the
// operation is on record, if nothing was done to that process meanwhile.
func (b *book) checkKept(o *operation, i int) {
	given := o.moves[i]
	for i--; i >= 0; i-- {
		m := o.moves[i]
		if m.By != given.By || m.Epoch != given.Epoch {
			return // a person has, or somebody else
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
		if heard && !kept && !o.isRunTwice(e) && !b.harmed(e.Op.Slot(), e.At, given.At) { // or else it may have tried in vain
			b.violates(o, rule.Kept, "%v has heard %q of %s, and gave the operation up at %v without that on record: %s",
				e.Op, e.Value, e.Name, given.At-b.options.Start, given.ReasonText)
			return
		}
	}
}

// isRunTwice reports whether the process that has heard an answer ran the operation twice just then, by two pools of its own: one of the runs
// had lost it.
func (o *operation) isRunTwice(heard journal.Event) bool {
	return slices.ContainsFunc(o.runs, func(r run) bool {
		return r.op != heard.Op && r.op.Process() == heard.Op.Process() && r.begin < heard.At && (heard.At < r.end || r.end == 0)
	})
}

// checkWaited checks the ith move, which has parked an operation because nobody knows of a call: not if it was canceled while a process
// made that call which lived to hear the answer.
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
			if e.Name == call && e.Op.Process() == owner.By && owner.At < e.At && r.end != 0 && r.begin < cancel.At && o.isAnswer(e) &&
				!b.harmed(e.Op.Slot(), r.begin, o.moves[i].At) && !o.isTakenInVain(c, i) {
				b.violates(o, rule.Waits, "%v has heard %q of %s, for which it was parked after it was canceled at %v", e.Op, e.Value, e.Name, cancel.At-b.options.Start)
				return
			}
		}
	}
}

// isAnswer reports whether a run had to take what it has heard for an answer. An error is none once the context of the run has ended: it
// may say no more than that.
func (o *operation) isAnswer(heard journal.Event) bool {
	return heard.Value != journal.Declined || !o.run(heard.Op).left
}

// isTakenInVain reports whether the operation was taken up between two moves by a process that has not run it: the answer was lost.
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

// harmed reports whether a worker was, or all were.
func (b *book) harmed(slot int, from, until time.Duration) bool {
	return slices.ContainsFunc(b.options.Faults, func(f Fault) bool {
		return (f.Slot == slot || f.Slot < 0) && f.At < until && from < f.Until+settled
	})
}

func (o *operation) run(op history.Op) (found run) {
	for _, r := range o.runs {
		if r.op == op {
			found = r
		}
	}
	return found
}

// blamed is how often the operation was taken up, up to the ith move, by a process that ended without a word or whose function failed,
// since it has last got on.
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

// isBlamed reports whether the run of whoever has taken the operation up has failed, or has no end.
func (o *operation) isBlamed(taken *journal.Move, until time.Duration) bool {
	for _, r := range o.runs {
		if r.op.Process() == taken.By && taken.At-clocks < r.begin && r.begin < until {
			return r.failed || r.end == 0
		}
	}
	return true // it has not come as far as that
}

// The reasons for which an operation of this program may be parked.
const (
	callInDoubt    = "call_in_doubt"
	codeChanged    = "code_changed"
	undoFailed     = "undo_failed"
	functionFailed = "function_failed"
	tooManyDeaths  = "too_many_deaths"
)

// maxDeaths is after how many deaths in a row an operation parks.
const maxDeaths = 10

var (
	otherOne = regexp.MustCompile(`^the code has changed: .*"([^"]+)".* asks for [a-z ]*"([^"]+)"`)
	gone     = regexp.MustCompile(`^the code has changed: it no longer asks for step "([^"]+)"`)
	undoGone = regexp.MustCompile(`^the code has changed: (?:step "([^"]+)" is recorded with \d+ undos|the undo of step "([^"]+)" was begun)`)
)

// isOfUndo reports whether an operation was parked at the undo of a step, and not at the step.
func isOfUndo(m *journal.Move) bool { return strings.HasPrefix(m.ReasonText, "the undo of step ") }

// parkedWrongly says why the reason for which an operation was parked cannot be true.
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

// changedWrongly says why the code cannot have changed as the reason says.
func (o *operation) changedWrongly(m *journal.Move) string {
	release := o.releaseOf(m)
	if found := otherOne.FindStringSubmatch(m.ReasonText); found != nil {
		return o.unchanged(m, release, found[1], found[2])
	}
	if found := gone.FindStringSubmatch(m.ReasonText); found != nil {
		return o.unchanged(m, release, found[1], "")
	}
	if undoGone.MatchString(m.ReasonText) && o.plan.ChangesUndos() {
		return ""
	}
	return "no release differs from another one by that"
}

// doubtedWrongly says why a call cannot be in doubt, or why it need not wait for a person.
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

// policyOf is what the code says of a call: the least number of its undos in any release.
func (o *operation) policyOf(call string) (policy journal.Safety, window time.Duration, undos int, ok bool) {
	undos = o.plan.Undos(0, call)
	for release := range journal.Releases {
		if o.plan.Knows(release, call) {
			undos = min(undos, o.plan.Undos(release, call))
		}
	}
	if round := o.roundOf(call); round != nil {
		return round.Call, round.Window, undos, true
	}
	for release := range journal.Releases {
		if o.plan.Knows(release, call) { // a check that was put in, a charge beside another one, or a child
			return journal.Keyed, journal.LongWindow, undos, true
		}
	}
	return "", 0, 0, false
}

// undoPolicyOf is what the code says of the call of an undo.
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

// parkedFailing says why an operation was not parked because it was canceled and its function failed in front of a step.
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

// isOpen reports whether a call that was made together with others has no outcome on record.
func isOpen(outcome string) bool { return outcome == "begun" || outcome == "not sent" }

// unchanged says why the code cannot have changed so that it asks for a step instead of one that is on record, or under way.
func (o *operation) unchanged(m *journal.Move, release int, recorded, asked string) string {
	isRecorded := m.Known[recorded] != "" || m.Step == recorded
	lacks := !o.plan.Knows(release, recorded)
	isNew := asked != ""
	for other := range journal.Releases {
		if asked != "" && !o.plan.Knows(other, asked) && o.plan.Knows(release, asked) {
			return map[bool]string{true: "", false: fmt.Sprintf("%s is neither on record nor under way", recorded)}[isRecorded]
		}
	}
	switch {
	case !isRecorded:
		return fmt.Sprintf("%s is neither on record nor under way", recorded)
	case !lacks && isNew:
		return fmt.Sprintf("release %d has %s, and every release has %s", release, recorded, asked)
	case !lacks:
		return fmt.Sprintf("release %d has %s", release, recorded)
	}
	return ""
}

// releaseOf is the release of the process that made a move: of its last run before. A process that has lost the operation may begin a run of
// its own release meanwhile.
func (o *operation) releaseOf(m *journal.Move) (release int) {
	var last time.Duration
	for _, r := range o.runs {
		if r.op.Process() == m.By && last <= r.begin && r.begin < m.At {
			last, release = r.begin, r.release
		}
	}
	return release
}

// roundOf is the round that a call is of, in any release.
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

// process is what a number of a move names.
func process(by uint32) history.Op { return history.Op(uint64(by) << 32) }
