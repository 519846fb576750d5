package command

import (
	"fmt"
	"unicode/utf8"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/store"
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
		p.Printf("\n%s\n", page.Wrap(remedyOfParked(o), "Note: ", 100))
	}
}

// remedyOfParked says what to do about an operation that is parked.
func remedyOfParked(o *record.Operation) string {
	unknown := ""
	if o.InDoubt() {
		unknown = " If the reason is that it is not known whether the call has happened, ask the other side, then: idem operation resolve " + o.ID +
			" --happened --value JSON, --not-happened, or --refused TEXT."
	}
	return "see to the reason, then: idem operation retry " + o.ID + ", or cancel." + unknown
}

// facts is what is known of an operation besides its name and its steps.
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
			page.Pair{Name: "attempts", Value: fmt.Sprintf("%d since it last got on", o.Attempts)})
	}
	if key := t.callKey(); key != "" {
		facts = append(facts, page.Pair{Name: "call's key", Value: shownKey(key, wholeKey) + p.Dim(" at the other side")})
	}
	for _, s := range t.steps {
		if s.Outcome == string(store.StepBegun) && s.Seq != o.Seq {
			key := shownKey(operation.CallKey(o.ID, s.Kind, s.Name), wholeKey)
			facts = append(facts, page.Pair{Name: "another", Value: key + p.Dim(" is that of "+page.Safe(s.Name))})
		}
	}
	family, awaited := t.family(p)
	facts = append(facts, family...)
	switch {
	case o.State == record.Parked:
		facts = append(facts, page.Pair{Name: "reason", Value: page.Safe(o.Reason)})
	case o.State == record.Running && o.Attended:
		facts = append(facts, page.Pair{Name: "worked on", Value: "by a process that is there"})
	case o.State == record.Running && awaited != "":
		facts = append(facts, page.Pair{Name: "waits for", Value: p.Yellow("operation "+awaited) + ", its child, to end"})
	case o.State == record.Running:
		facts = append(facts, page.Pair{Name: "worked on", Value: p.Yellow("by no process") + "; due " + relative(o.WakeAt, o.Now)})
	}
	if o.Input.SealedBy != "" {
		facts = append(facts, page.Pair{Name: "sealed with", Value: page.Safe(o.Input.SealedBy)})
	}
	return append(facts, page.Pair{Name: "input", Value: shownText(o.Input)})
}

// family is of which operation it is a child, and which are its own. awaited is the one that it waits for.
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
		if s.Outcome == string(store.StepWaiting) {
			awaited = child
		}
	}
	return facts, awaited
}

// childOf returns the id of the operation that a step of an operation has begun, "" if it has begun none.
func childOf(o *record.Operation, s *record.Step) string {
	if s.Kind != string(store.ChildStep) {
		return ""
	}
	return operation.ChildID(o.ID, s.Name)
}

// callKey is the key by which the other side knows the call that is under way, "" if none is.
func (t *timeline) callKey() string {
	o := t.operation
	if o.EndedAt != nil || o.Seq == 0 {
		return ""
	}
	for _, s := range t.steps {
		switch {
		case s.Seq != o.Seq:
		case s.Kind == string(store.UndoStep), s.Outcome == string(store.StepBegun):
			return operation.CallKey(o.ID, s.Kind, s.Name)
		default:
			return ""
		}
	}
	return operation.CallKey(o.ID, string(store.CallStep), o.Step)
}

func atStep(o *record.Operation) string {
	if o.Step == "" {
		return "-"
	}
	return page.Safe(o.Step)
}

// shownText is a value as a person sees it.
func shownText(v record.Value) string {
	switch {
	case v.Stored == nil:
		return hidden(v.Bytes)
	case !utf8.Valid(v.Stored):
		return fmt.Sprintf("%s that are no text: --json has them", page.Bytes(int64(len(v.Stored))))
	}
	return page.Safe(string(v.Stored))
}
