package audit

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkChildren checks that each child operation was created exactly once, in the commit that
// records the step of its parent, and that the parent got the actual outcome of the child.
//
// The step and the row of the child must both exist or both be missing. A child belongs to the
// round whose journal.PartKey is a prefix of the key of the child's plan.
func (b *book) checkChildren(o *operation) {
	found := 0
	for i := range o.plan.Rounds {
		round, n := &o.plan.Rounds[i], i+1
		var children []*operation
		for _, c := range o.children {
			if strings.HasPrefix(c.plan.Key, journal.PartKey(o.plan.Key, n)) {
				children = append(children, c)
			}
		}
		found += len(children)
		step := o.partStep(round, n)
		switch {
		case len(children) > 1 || (step != nil) != (len(children) == 1):
			b.violates(o, rule.Child, "part %d is on record: %t, and has %d children", n, step != nil, len(children))
		case step != nil:
			b.checkChild(o, children[0], step)
			b.checkPart(o, children[0], n)
		case o.row.State == "completed" && round.Part.At != journal.Nowhere:
			b.violates(o, rule.Child, "it is completed without a child for part %d", n)
		}
	}
	if found != len(o.children) {
		b.violates(o, rule.Child, "it has %d children, and %d of them are of a part", len(o.children), found)
	}
}

// partStep returns the step that began the child of round n, or nil if there is none.
func (o *operation) partStep(round *journal.Round, n int) *journal.Step {
	i := slices.IndexFunc(o.steps, func(s *journal.Step) bool { return s.Kind == "child" && o.isPart(s.Name, round, n) })
	if i < 0 || round.Part.At == journal.Nowhere {
		return nil
	}
	return o.steps[i]
}

// isPart reports whether the step begins the child of round n in some release. Its name may depend
// on the release.
func (o *operation) isPart(step string, round *journal.Round, n int) bool {
	return step == round.PartIn(0, n) || step == round.PartIn(journal.Releases-1, n)
}

// childEnd is the outcome of a child, as stored in the step of its parent.
type childEnd struct {
	State    string
	Canceled bool
	Response *struct{ Body []byte }
}

func (e *childEnd) String() string {
	var body []byte
	if e.Response != nil {
		body = e.Response.Body
	}
	return journal.ChildSaid(e.State, e.Canceled, body)
}

// end returns the outcome of the operation in the form of childEnd.String, from its own row and
// record.
func (o *operation) end() string {
	e := childEnd{State: o.row.State}
	switch {
	case o.row.State == "undone":
		e.Canceled = o.row.Canceled
	case o.record != nil && o.record.Answer != nil:
		body, _ := json.Marshal(o.record.Answer)
		e.Response = &struct{ Body []byte }{body}
	}
	return e.String()
}

// checkChild checks that the outcome of a child is the same in its own row, in the step of its
// parent, and in every run of the parent.
func (b *book) checkChild(o, child *operation, step *journal.Step) {
	var end childEnd
	if step.Outcome == "waiting" {
		if o.hasEnded() {
			b.violates(o, rule.ChildTold, "it has ended, and still waits for child %s, which is %s", child.id, child.row.State)
		}
	} else if err := json.Unmarshal([]byte(step.Value), &end); err != nil || end.String() != child.end() {
		b.violates(o, rule.ChildTold, "on record is %s, and of child %s: %s", step.Value, child.id, child.end())
	} else if (step.Outcome == "done") != (end.State == "completed") {
		b.violates(o, rule.ChildTold, "%s is %s, and child %s is %s", step.Name, step.Outcome, child.id, end.State)
	}
	for _, e := range o.saw {
		if e.Name == step.Name && e.Value != child.end() {
			b.violates(o, rule.ChildTold, "%v saw of child %s: %s, and on record is %s", e.Op, child.id, e.Value, child.end())
			return
		}
	}
	b.checkInFront(o, child, step)
	b.checkCut(o, child, step)
}

// checkCut checks that a canceled parent cancels the child that it awaits. The commit with which
// the parent begins to wait must also cancel the child.
//
// The moves of the parent show that commit: the parent is canceled, has no owner, wakes up by an
// event only, and its step for the child is recorded as waiting.
func (b *book) checkCut(o, child *operation, step *journal.Step) {
	last := len(child.moves) - 1
	if last < 0 || child.row.Canceled {
		return
	}
	for _, m := range o.moves {
		// Only a wait that began after the cancellation counts, so the parent must have run between
		// the cancellation and m. A child that had ended by then has nothing left to cancel.
		if m.Canceled && m.Owner == 0 && m.Endless && m.Attempts == 0 && m.Known[step.Name] == "waiting" && m.At+clocks < child.moves[last].At &&
			o.ranSince(o.canceledAt(), m.At) {
			b.violates(o, rule.ChildCut, "it was canceled, awaits child %s since %v, and that was not canceled", child.id, m.At-b.options.Start)
			return
		}
	}
}

// ranSince reports whether a process had claimed the operation between the two times.
func (o *operation) ranSince(from, until time.Duration) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool { return m.Owner != 0 && from < m.At && m.At < until })
}

// checkInFront checks that no step was inserted before the step of a child after the child had
// begun.
func (b *book) checkInFront(o, child *operation, step *journal.Step) {
	if len(child.moves) == 0 {
		return
	}
	begun := child.moves[0].At
	for _, s := range o.steps[:slices.Index(o.steps, step)] {
		isStep := s.Kind == "tx" || s.Kind == "call" || s.Kind == "changed"
		if isStep && s.Outcome != "rolled back" && s.Recorded > begun+clocks {
			b.violates(o, rule.InDoubt, "child %s was begun at %v, and %s %s was put in front of it at %v", child.id, begun-b.options.Start,
				s.Kind, s.Name, s.Recorded-b.options.Start)
			return
		}
	}
}

// checkPart checks a parent whose child did not complete. The parent may complete only if its plan
// says so.
func (b *book) checkPart(o, child *operation, n int) {
	part := &o.plan.Rounds[n-1].Part
	if o.row.State == "completed" && child.row.State != "completed" && part.Then != journal.GoesOn {
		b.violates(o, rule.ChildTold, "it is completed, child %s is %s, and then %s", child.id, child.row.State, part.Then)
	}
}

// awaitsParked reports whether an operation is still running only because it awaits a parked child.
func (o *operation) awaitsParked() bool {
	return slices.ContainsFunc(o.children, func(c *operation) bool {
		waits := slices.ContainsFunc(o.steps, func(s *journal.Step) bool {
			return s.Kind == "child" && s.Outcome == "waiting" && strings.HasPrefix(c.plan.Key, o.plan.Key)
		})
		return waits && (c.row.State == "parked" || c.row.State == "running" && c.awaitsParked())
	})
}
