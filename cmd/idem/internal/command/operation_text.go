package command

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

func (c *operationShowCommand) text(p *page.Page, t *timeline) {
	o := t.operation
	p.Pairs(append([]page.Pair{
		{Name: "operation id", Value: o.ID},
		{Name: "name", Value: page.Safe(o.Name)},
		{Name: "scope", Value: page.Safe(o.Scope)},
		{Name: "key", Value: shownKey(o.Key, c.Full)},
	}, t.facts(p, c.Full)...))
	p.Printf("\n")
	t.table(p, c.Reveal)
	if o.State == record.Parked {
		p.Printf("\n%s\n", page.Wrap(t.remedy(), "Note: ", 100))
	}
}

// remedy returns advice about a parked operation.
func (t *timeline) remedy() string {
	o, unknown := t.operation, ""
	if len(t.doubts()) > 0 {
		unknown = " A call is in doubt: ask the other side by the key of the call, then: idem operation resolve " + o.ID +
			" --happened --value JSON, --not-happened, or --refused TEXT, and --reason TEXT."
	}
	return "docs/operations-reference.md says what to do about " + o.Reason + ". Then: idem operation retry " + o.ID + ", or cancel." + unknown
}

// facts returns the attributes of the operation, apart from its name and steps.
func (t *timeline) facts(p *page.Page, wholeKey bool) []page.Pair {
	o := t.operation
	facts := []page.Pair{
		{Name: "state", Value: operationState(p, o)},
		{Name: "created", Value: page.Time(o.CreatedAt) + p.Dim(" ("+relative(o.CreatedAt, o.Now)+")")},
	}
	if o.EndedAt != nil {
		facts = append(facts, page.Pair{Name: "ended", Value: page.Time(*o.EndedAt) + p.Dim(" (after "+page.Age(o.EndedAt.Sub(o.CreatedAt))+")")})
	} else {
		facts = append(facts, page.Pair{Name: "at step", Value: atStep(o) + p.Dim(" (since "+page.Time(o.Since)+", "+relative(o.Since, o.Now)+")")},
			page.Pair{Name: "attempts", Value: fmt.Sprintf("%d since its last progress", o.Attempts)})
	}
	for _, d := range t.doubts() {
		key := shownKey(operation.CallKey(o.ID, d.Kind, d.Name), wholeKey)
		facts = append(facts, page.Pair{Name: "call's key", Value: key + p.Dim(" at the other side, of "+doubtName(&d))})
	}
	family, awaited := t.family(p)
	facts = append(facts, family...)
	switch {
	case o.State == record.Parked:
		facts = append(facts, page.Pair{Name: "reason", Value: page.Safe(o.Reason)}, page.Pair{Name: "parked because", Value: page.Safe(o.ReasonText)})
	case o.State == record.Running && o.Attended:
		facts = append(facts, page.Pair{Name: "worked on", Value: "by a process that is there"})
	case o.State == record.Running && awaited != "":
		facts = append(facts, page.Pair{Name: "waits for", Value: p.Yellow("operation "+awaited) + ", its child, to end"})
	case o.State == record.Running:
		facts = append(facts, page.Pair{Name: "worked on", Value: p.Yellow("by no process") + "; due " + relative(o.WakeAt, o.Now)})
	}
	if o.LastError != nil {
		facts = append(facts, page.Pair{Name: "last error", Value: page.Safe(o.LastError.Text) + p.Dim(" ("+attemptOf(o)+")")})
	}
	if len(t.undos) > 0 {
		facts = append(facts, page.Pair{Name: "still to undo", Value: page.Safe(strings.Join(t.undos, ", "))})
	}
	if len(t.kept) > 0 {
		facts = append(facts, page.Pair{Name: "stays", Value: page.Safe(strings.Join(t.kept, ", ")) + p.Dim(" (done, and without an undo)")})
	}
	if o.Input.SealedBy != "" {
		facts = append(facts, page.Pair{Name: "sealed with", Value: page.Safe(o.Input.SealedBy)})
	}
	return append(facts, page.Pair{Name: "input", Value: shownText(o.Input)})
}

// family returns the IDs of the parent and of the children of the operation. The result awaited is
// the child that the operation waits for.
func (t *timeline) family(p *page.Page) (facts []page.Pair, awaited string) {
	if t.operation.Parent != "" {
		facts = append(facts, page.Pair{Name: "parent", Value: t.operation.Parent})
	}
	for _, s := range t.steps {
		child := childOf(t.operation, &s)
		if child == "" {
			continue
		}
		facts = append(facts, page.Pair{Name: "child", Value: child + p.Dim(" is that of "+page.Safe(s.Name))})
		if s.Outcome == string(db.StepWaiting) {
			awaited = child
		}
	}
	return facts, awaited
}

// childOf returns the ID of the operation that step s began, or "" if s is not such a step.
func childOf(o *record.Operation, s *record.Step) string {
	if s.Kind != string(db.ChildStep) {
		return ""
	}
	return operation.ChildID(o.ID, s.Name)
}

// doubts returns the calls that were begun and have no recorded outcome.
func (t *timeline) doubts() []record.Doubt { return record.Doubts(t.operation, t.steps) }

// doubtName returns the name of a call or of an undo as people see it.
func doubtName(d *record.Doubt) string {
	if d.IsUndo() {
		return "the undo of step " + page.Safe(record.UndoName(d.Name))
	}
	return "step " + page.Safe(d.Name)
}

func atStep(o *record.Operation) string {
	if o.Step == "" {
		return "-"
	}
	return page.Safe(o.Step)
}

// shownText returns a value as people see it.
func shownText(v record.Value) string {
	switch {
	case v.Stored == nil:
		return hidden(v.Bytes)
	case !utf8.Valid(v.Stored):
		return fmt.Sprintf("%s that are no text: --json has them", page.Bytes(int64(len(v.Stored))))
	}
	return page.Safe(string(v.Stored))
}
