package audit_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// ofParent returns the key of an operation whose first round has a child.
func ofParent(t *testing.T) string {
	t.Helper()
	return keyOf(t, func(p journal.Plan) bool {
		first := p.Rounds[0].Part
		if first.At == journal.Nowhere || first.Then != journal.GoesOn || first.Undo != journal.NoUndo || first.Since > 0 || len(p.Rounds) != 2 {
			return false
		}
		p.Rounds[0].Part = journal.Part{}
		return plain(journal.OK)(p)
	})
}

// keptByParent returns a run of an operation with a child that is undone. The function continues
// after that.
func keptByParent(key string) *told {
	r := keptOf(key, "completed")
	r.steps = append(r.steps, &journal.Step{Operation: "id", Kind: "child", Name: "part-1", Outcome: "failed", Value: `{"state":"undone"}`})
	r.children = []*journal.Operation{{ID: "child", Key: "random", Plan: journal.PartKey(key, 1), Parent: "id", State: "undone"}}
	r.events = append(r.events, journal.Event{Kind: journal.KindSaw, Operation: "id", Name: "part-1", Value: journal.ChildSaid("undone", false, nil)})
	return r
}

func TestFiles_FindsEachBrokenPromiseOfAChild(t *testing.T) {
	t.Parallel()
	key := ofParent(t)
	childStep := func(r *told) *journal.Step { return r.steps[len(r.steps)-1] }
	wantFound(t, []broken{
		{"there is no child", rule.Child, "", func(r *told) { r.children = nil }},
		{"there are two", rule.Child, "", func(r *told) {
			second := *r.children[0]
			second.ID = "second"
			r.children = append(r.children, &second)
		}},
		{"a child that no step has begun", rule.Child, "", func(r *told) { r.steps = r.steps[:len(r.steps)-1] }},
		{"a child of nothing that is to be done", rule.Child, "", func(r *told) { r.children[0].Plan = "another" }},
		{"a parent that is not there", rule.Durable, "", func(r *told) { r.children[0].Parent = "nowhere" }},
		{"another end is on record", rule.ChildTold, "", func(r *told) { childStep(r).Value = `{"state":"undone","canceled":true}` }},
		{"another outcome is on record", rule.ChildTold, "", func(r *told) { childStep(r).Outcome = "done" }},
		{"the function sees another end", rule.ChildTold, "", func(r *told) { r.events[len(r.events)-1].Value = journal.ChildSaid("completed", false, nil) }},
		{"it has ended before its child", rule.ChildTold, "", func(r *told) { childStep(r).Outcome = "waiting" }},
		{"an undo of a child that has not completed", rule.UndoneOnce, "", func(r *told) {
			r.effects = append(r.effects, &journal.Effect{Operation: "id", Step: journal.UndoOf("part-1", 0), Nonce: "nonce"})
		}},
		{"a step is put in front of it", rule.InDoubt, "", func(r *told) {
			r.moves = append(r.moves, &journal.Move{Operation: "child", State: "running", At: time.Second})
			r.steps[0].Recorded = 2 * time.Second
		}},
		{"it is not canceled", rule.ChildCut, "", func(r *told) {
			waits := map[string]string{"part-1": "waiting"}
			r.moves = append(r.moves, &journal.Move{Operation: "id", State: "running", Canceled: true, At: time.Second},
				&journal.Move{Operation: "id", State: "running", Canceled: true, At: 2 * time.Second, Owner: 1},
				&journal.Move{Operation: "id", State: "running", Canceled: true, At: 3 * time.Second, Endless: true, Known: waits},
				&journal.Move{Operation: "child", State: "undone", At: 4 * time.Second})
		}},
	}, func(string) *told { return keptByParent(key) })
}
