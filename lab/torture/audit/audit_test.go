package audit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/audit"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

const seed = 1

// keyOf returns a key whose plan satisfies the test.
func keyOf(t *testing.T, wanted func(journal.Plan) bool) string {
	t.Helper()
	for n := range 100000 {
		if key := fmt.Sprint("key-", n); wanted(journal.PlanOf(seed, key)) {
			return key
		}
	}
	t.Fatal("there is no such plan")
	return ""
}

// plain is a plan of two rounds, each with a Tx and a Keyed call.
func plain(end journal.End) func(journal.Plan) bool {
	return func(p journal.Plan) bool {
		for _, r := range p.Rounds {
			if r.Day != (journal.Day{}) || r.Part != (journal.Part{}) || !r.Tx || r.KeepTx || r.Undos != 1 || r.Call != journal.Keyed || r.Window != journal.LongWindow {
				return false
			}
		}
		return len(p.Rounds) == 2 && p.End == end && !p.WalkIn
	}
}

// told is everything that is known of a run. It starts as a run in which every promise was kept.
type told struct {
	operation *journal.Operation
	former    *journal.Operation // of the same key
	children  []*journal.Operation
	moves     []*journal.Move
	steps     []*journal.Step
	effects   []*journal.Effect
	entries   []journal.Entry
	signals   []*journal.Signal
	record    *journal.Record
	events    []journal.Event
	stop      time.Duration // when the workers were told to end
}

// kept returns a run of one operation.
func kept(t *testing.T, end journal.End, state string) *told {
	return keptOf(keyOf(t, plain(end)), state)
}

// keptOf returns a run of an operation with two rounds.
func keptOf(key, state string) *told {
	id := "id"
	values, paid := map[string]string{}, map[string]string{}
	r := &told{operation: &journal.Operation{ID: id, Key: key, State: state}}
	at := time.Duration(0)
	step := func(kind, name, outcome, value string) {
		r.steps = append(r.steps, &journal.Step{Operation: id, Kind: kind, Name: name, Outcome: outcome, Value: fmt.Sprintf("%q", value)})
	}
	write := func(name string) {
		at += time.Second
		r.effects = append(r.effects, &journal.Effect{Operation: id, Step: name, Nonce: "nonce " + name, At: at})
	}
	book := func(name, place, refunds string) {
		at += time.Second
		r.entries = append(r.entries, journal.Entry{
			Operation: id, Step: name, Booked: true, Receipt: "receipt " + name, At: at, Key: name, Place: place, Refunds: refunds,
		})
	}
	var round journal.Round
	for n := 1; n <= 2; n++ {
		write(round.Reserve(n))
		book(round.Charge(n), journal.Place(n), "")
		paid[journal.Place(n)] = "receipt " + round.Charge(n)
		values[round.Reserve(n)], values[round.Charge(n)] = "nonce "+round.Reserve(n), "receipt "+round.Charge(n)
		step("tx", round.Reserve(n), "done", values[round.Reserve(n)])
		step("call", round.Charge(n), "done", values[round.Charge(n)])
		r.steps[len(r.steps)-2].Undos, r.steps[len(r.steps)-1].Undos = 1, 1
	}
	for n := 2; n >= 1 && state != "completed"; n-- {
		book(journal.UndoOf(round.Charge(n), 0), "refund of "+journal.Place(n), journal.Place(n))
		r.entries[len(r.entries)-1].Given = values[round.Charge(n)]
		write(journal.UndoOf(round.Reserve(n), 0))
		r.effects[len(r.effects)-1].Given = values[round.Reserve(n)]
		step("undo", journal.UndoOf(round.Charge(n), 0), "done", "")
		step("undo", journal.UndoOf(round.Reserve(n), 0), "done", "")
	}
	answer := &journal.Answer{Operation: id, Rejected: state == "failed", Values: values, Paid: paid}
	r.record = &journal.Record{ID: id, Key: key, State: state, Answer: answer}
	for n := uint32(1); n <= 2; n++ {
		op := history.NewOp(0, 0, n)
		r.events = append(r.events, journal.Event{Kind: journal.KindCall, Op: op, Verb: journal.Do, Key: key},
			journal.Event{Kind: journal.KindReturn, Op: op, Verb: journal.Do, Key: key, Operation: id, Rejected: answer.Rejected,
				Answer: &journal.Answer{Operation: id, Rejected: answer.Rejected, Values: maps.Clone(values), Paid: paid}})
	}
	r.runs(10*time.Second, 11*time.Second, 0)
	return r
}

// runs adds a run of the function in the worker of a slot.
func (r *told) runs(begin, end time.Duration, slot int) {
	op := history.NewOp(slot, 0, uint32(100+len(r.events)))
	r.events = append(r.events, journal.Event{At: begin, Kind: journal.KindBegin, Op: op, Operation: "id"},
		journal.Event{At: end, Kind: journal.KindEnd, Op: op, Operation: "id"})
}

// moved adds a move of the operation after everything else, with the recorded outcomes of its
// steps.
func (r *told) moved(state, reason string, owner int) *journal.Move {
	m := &journal.Move{Operation: "id", State: state, Reason: reason, ReasonStep: "charge-1", Owner: owner, Epoch: 1, At: time.Minute, Known: map[string]string{}}
	for _, s := range r.steps {
		m.Known[s.Name] = s.Outcome
	}
	return m
}

// audited returns the violations of the run.
func (r *told) audited(t *testing.T) (found []rule.Rule) {
	t.Helper()
	state := &journal.State{
		Operations: r.children, Steps: r.steps, Effects: r.effects, Signals: r.signals, Moves: r.moves, Records: []*journal.Record{r.record},
	}
	for _, o := range []*journal.Operation{r.operation, r.former} {
		if o != nil {
			state.Operations = append(state.Operations, o)
		}
	}
	result := audit.Run(state, r.entries, r.events, audit.Options{Seed: seed, Calm: time.Second, Stop: r.stop})
	for _, v := range result.Violations {
		found = append(found, v.Rule)
	}
	return found
}

// broken is a run in which one promise was broken.
type broken struct {
	name  string
	want  rule.Rule
	state string // of the operation
	spoil func(*told)
}

// wantFound fails the test unless the audit finds each broken promise, and none before that.
func wantFound(t *testing.T, tests []broken, kept func(state string) *told) {
	t.Helper()
	for _, test := range tests {
		if found := kept(test.state).audited(t); len(found) > 0 {
			t.Fatalf("where every promise was kept: %q", found)
		}
		r := kept(test.state)
		test.spoil(r)
		if found := r.audited(t); !slices.Contains(found, test.want) {
			t.Errorf("%s: found %q, want %q", test.name, found, test.want)
		}
	}
}

// completedOrFailed returns a run of an operation without anything special.
func completedOrFailed(t *testing.T) func(state string) *told {
	return func(state string) *told {
		return kept(t, map[string]journal.End{"completed": journal.OK, "failed": journal.Reject}[state], state)
	}
}

func TestFiles_FindsEachBrokenPromise(t *testing.T) {
	t.Parallel()
	park := func(reason string) func(*told) {
		return func(r *told) {
			r.moves = append(r.moves, r.moved("parked", reason, 0))
		}
	}
	wantFound(t, []broken{
		{"the bank has booked twice", rule.CallOnce, "completed", func(r *told) { r.entries = append(r.entries, r.entries[0]) }},
		{"the bank has not booked", rule.CallMade, "completed", func(r *told) { r.entries = r.entries[1:] }},
		{"there is no operation", rule.Durable, "completed", func(r *told) { r.operation = nil }},
		{"a step is committed twice", rule.StepOnce, "completed", func(r *told) { r.effects = append(r.effects, r.effects[0]) }},
		{"a step is remembered and not committed", rule.StepWhole, "completed", func(r *told) { r.effects = r.effects[1:] }},
		{"a step is committed and not remembered", rule.StepWhole, "completed", func(r *told) { r.steps = r.steps[1:] }},
		{"an undo has not run", rule.UndoneOnce, "failed", func(r *told) { r.entries = r.entries[:len(r.entries)-1] }},
		{"an undo of what is completed", rule.UndoneOnce, "completed", func(r *told) {
			r.entries = append(r.entries, journal.Entry{Operation: "id", Step: journal.UndoOf("charge-1", 0), Booked: true, Refunds: journal.Place(1)})
		}},
		{"an undo of a step that has failed", rule.UndoneOnce, "failed", func(r *told) { r.steps[1].Outcome = "failed" }},
		{"an undo that has run twice", rule.UndoneOnce, "failed", func(r *told) { r.effects = append(r.effects, r.effects[2]) }},
		{"undos in the order of their steps", rule.UndoneOrder, "failed", func(r *told) { r.entries[2].At, r.entries[3].At = r.entries[3].At, r.entries[2].At }},
		{"an undo with another value", rule.UndoneValue, "failed", func(r *told) { r.entries[2].Given = "receipt 7" }},
		{"a step behind an undo", rule.UndoneLast, "failed", func(r *told) { r.entries[1].At = time.Hour }},
		{"a call that is begun behind Cancel", rule.Canceled, "failed", func(r *told) {
			r.operation.Canceled = true
			r.moves = append(r.moves, &journal.Move{Operation: "id", State: "running", Canceled: true, Step: "reserve-1", At: time.Millisecond})
		}},
		{"it is parked for ever", rule.Mended, "completed", func(r *told) { r.operation.State, r.record.State = "parked", "running" }},
		{"it goes on for ever", rule.Ends, "completed", func(r *told) { r.operation.State = "running" }},
		{"an untrue reason", rule.Reason, "completed", park("code_changed")},
		{"a call that is recorded", rule.Reason, "completed", func(r *told) {
			m := r.moved("parked", "call_in_doubt", 0)
			m.Known["charge-1"] = "failed"
			r.moves = append(r.moves, m)
		}},
		{"a window that is not over", rule.Reason, "completed", func(r *told) {
			m := r.moved("parked", "call_in_doubt", 0)
			m.Known["charge-1"], m.Since = "begun", m.At
			r.moves = append(r.moves, m)
		}},
		{"an answer of what is undone", rule.Acknowledge, "completed", func(r *told) { r.operation.State = "undone" }},
		{"it is said to be parked", rule.Acknowledge, "completed", func(r *told) {
			r.events = append(r.events, journal.Event{Kind: journal.KindReturn, Operation: "id", Parked: true})
		}},
		{"it was canceled", rule.Acknowledge, "completed", func(r *told) { r.operation.Canceled = true }},
		{"a start that is lost", rule.Acknowledge, "completed", func(r *told) {
			r.events = append(r.events, journal.Event{Kind: journal.KindReturn, Verb: journal.Start, Operation: "another"})
		}},
		{"another answer", rule.SameAnswer, "completed", func(r *told) { r.events[3].Answer.Values["charge-1"] = "receipt 7" }},
		{"two records", rule.OneOutcome, "completed", func(r *told) { r.record.ID = "another" }},
		{"a signal that was there", rule.Signalled, "completed", func(r *told) {
			r.steps = append(r.steps, &journal.Step{Operation: "id", Kind: "await", Name: "wait-2", Outcome: "failed", Due: 1000})
			r.events = append(r.events, journal.Event{Kind: journal.KindSignal, Operation: "id", Name: "wait-2", Wall: 900})
		}},
		{"another signal", rule.Signalled, "completed", func(r *told) {
			r.steps = append(r.steps, &journal.Step{Operation: "id", Kind: "await", Name: "wait-2", Outcome: "done", Value: `"a"`})
			r.signals = append(r.signals, &journal.Signal{Operation: "id", Name: "wait-2", Value: `"b"`})
		}},
		{"two who work on it", rule.OneWorker, "completed", func(r *told) { r.runs(10500*time.Millisecond, 12*time.Second, 1) }},
	}, completedOrFailed(t))
}
