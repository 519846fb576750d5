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

// row returns a move by a process. It has an owner unless the process is negative.
func row(by int, epoch int, state string) *journal.Move {
	m := &journal.Move{Operation: "id", State: state, Epoch: epoch, By: uint32(by), Attempts: min(epoch-1, 1), At: time.Minute}
	if m.Owner = by; by < 0 {
		m.Owner, m.By = 0, uint32(-by)
	}
	return m
}

func canceled(m *journal.Move) *journal.Move {
	m.Canceled = true
	return m
}

func TestModel_JudgesTheMovesOfAnOperation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state string
		moves []*journal.Move
		want  bool
	}{
		"released and taken over": {"completed", []*journal.Move{
			row(1, 1, "running"), row(-1, 1, "running"), row(2, 2, "running"), row(-2, 2, "completed")}, true},
		"taken over from a process that is gone, which has a new number": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(1, 3, "running"),
			{Operation: "id", State: "running", Epoch: 3, By: 1, Owner: 7}, row(-1, 3, "completed")}, true},
		"canceled and undone": {"undone", []*journal.Move{
			row(1, 1, "running"), canceled(row(1, 1, "running")), canceled(row(2, 2, "running")), canceled(row(-2, 2, "undone"))}, true},
		"parked, resolved and completed": {"completed", []*journal.Move{
			row(-1, 1, "running"), row(2, 2, "running"), row(-2, 2, "parked"), row(-9, 3, "running"), row(1, 4, "running"), row(-1, 4, "completed")}, true},
		"no-fence: a commit of the process that lost the operation": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(-1, 2, "completed")}, false},
		"no-fence: the owner is again the process that lost it": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 2, "running"), row(1, 2, "running"), row(-2, 2, "completed")}, false},
		"same-epoch: taken over in the same epoch": {"completed", []*journal.Move{
			row(1, 1, "running"), row(2, 1, "running"), row(-2, 1, "completed")}, false},
		"call-after-cancel: canceled and completed": {"completed", []*journal.Move{
			row(1, 1, "running"), canceled(row(1, 1, "running")), canceled(row(-1, 1, "completed"))}, false},
		"completed twice": {"completed", []*journal.Move{
			row(-1, 1, "running"), row(1, 2, "running"), row(-1, 2, "completed"), row(2, 3, "running")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := kept(t, journal.OK, test.state)
			r.moves = test.moves
			if found := r.audited(t); slices.Contains(found, rule.Epoch) == test.want {
				t.Errorf("found %q", found)
			}
		})
	}
}

// owned adds a claim by the worker of slot 0 before everything else, and a release after it.
func (r *told) owned(given *journal.Move) {
	taken := *given
	taken.Owner, taken.State, taken.At, taken.Attempts = 1, "running", time.Nanosecond, 1
	r.moves = append(r.moves, &taken, given)
}

// forgets adds a run that hears an answer of the bank, and a release that does not record the
// answer. left reports that the context of the run had ended.
func (r *told) forgets(answer string, left bool) {
	run := history.NewOp(0, 0, 500)
	r.events = append(r.events, journal.Event{Kind: journal.KindBegin, Op: run, Operation: "id", At: 20 * time.Second},
		journal.Event{Kind: journal.KindHeard, Op: run, Operation: "id", At: 30 * time.Second, Name: "charge-2", Value: answer},
		journal.Event{Kind: journal.KindEnd, Op: run, Operation: "id", At: 31 * time.Second, Left: left})
	m := r.moved("running", "", 0)
	delete(m.Known, "charge-2")
	r.owned(m)
}

func TestFiles_FindsEachBrokenPromiseOfADay(t *testing.T) {
	t.Parallel()
	ask := func(r *told, step, place, key string, at time.Duration) {
		r.entries = append(r.entries, journal.Entry{Operation: "id", Step: step, Place: place, Key: key, At: at})
	}
	wantFound(t, []broken{
		{"a call that was begun is not on record", rule.InDoubt, "completed", func(r *told) { ask(r, "charge-7", "place 7", "a", time.Second) }},
		{"a step is put in front of a call that was begun", rule.InDoubt, "completed", func(r *told) { r.steps[0].Recorded = 10 * time.Second }},
		{"a charge under two keys", rule.OneKey, "completed", func(r *told) { ask(r, "charge-1", journal.Place(1), "another", 10*time.Second) }},
		{"the answer does not know of a charge", rule.Stands, "completed", func(r *told) { delete(r.record.Answer.Paid, journal.Place(1)) }},
		{"an error that says something else", rule.SameError, "completed", func(r *told) {
			r.events = append(r.events, journal.Event{Kind: journal.KindSaw, Operation: "id", Name: "card-1", Value: "declined: false"})
		}},
		{"another value", rule.SameValue, "completed", func(r *told) {
			r.events = append(r.events, journal.Event{Kind: journal.KindSaw, Operation: "id", Name: "count-1", Value: "as it was: false"})
		}},
		{"an attempt that was not made is final", rule.Unsent, "failed", func(r *told) {
			r.steps[1].Outcome = "failed"
			r.events = append(r.events, journal.Event{Kind: journal.KindUnsent, Operation: "id", Name: "charge-1"})
		}},
		{"parked by a bound while callers left", rule.Innocent, "completed", func(r *told) {
			m := r.moved("parked", "too_many_deaths", 0)
			m.Deaths = 20
			r.owned(m)
		}},
		{"a code that has not changed", rule.Reason, "completed", func(r *told) {
			m := r.moved("parked", "code_changed", 0)
			r.owned(m)
		}},
		{"what is canceled is begun anew", rule.Anew, "completed", func(r *told) {
			call := history.NewOp(0, 0, 900)
			r.events = append(r.events, journal.Event{Kind: journal.KindCall, Op: call, Key: r.operation.Key},
				journal.Event{Kind: journal.KindWait, Op: call, At: 2 * time.Second},
				journal.Event{Kind: journal.KindBegin, Op: history.NewOp(0, 0, 901), Operation: "id", By: call, At: 5 * time.Second})
			former := &journal.Operation{ID: "former", Key: r.operation.Key, State: "undone", Canceled: true}
			r.former = former
			r.moves = append(r.moves, &journal.Move{Operation: "former", State: "running", Owner: 1, At: time.Second},
				&journal.Move{Operation: "former", State: "running", Canceled: true, At: 3 * time.Second})
		}},
		{"a call is told of another operation", rule.Awaited, "completed", func(r *told) {
			r.events = append(r.events, journal.Event{Kind: journal.KindWait, Op: r.events[0].Op, At: 2 * time.Second})
			r.former = &journal.Operation{ID: "former", Key: r.operation.Key, State: "undone", Canceled: true}
			r.moves = append(r.moves, &journal.Move{Operation: "former", State: "running", At: time.Second},
				&journal.Move{Operation: "former", State: "undone", Canceled: true, At: 3 * time.Second})
		}},
	}, completedOrFailed(t))
}

// After the end of the context of a run, an error is not an answer, but a receipt is. A process has
// two pools and therefore two instances. When a lease ends, both may run an operation at the same
// time, and the instance that lost it records nothing.
func TestFiles_WantsAnAnswerOnRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer     string
		left       bool
		begin, end time.Duration // of another run of the process
		want       bool
	}{
		"an error after the end of the context":  {journal.Declined, true, time.Second, 2 * time.Second, false},
		"an error before the end of the context": {journal.Declined, false, time.Second, 2 * time.Second, true},
		"a receipt after the end of the context": {"receipt", true, time.Second, 2 * time.Second, true},
		"another run at that time":               {"receipt", false, 2 * time.Second, 32 * time.Second, false},
		"another run without an end":             {"receipt", false, 2 * time.Second, 0, false},
		"another run that ended before":          {"receipt", false, 2 * time.Second, 3 * time.Second, true},
		"another run that began later":           {"receipt", false, 40 * time.Second, 41 * time.Second, true},
	} {
		r := kept(t, journal.OK, "completed")
		r.runs(test.begin, test.end, 0)
		r.forgets(test.answer, test.left)
		if found := r.audited(t); slices.Contains(found, rule.Kept) != test.want {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

// The process of slot 0 claims the operation after two minutes and does not run it.
func TestFiles_WantsAClaimedOperationToRun(t *testing.T) {
	t.Parallel()
	const before, soon, live = time.Minute, 2*time.Minute + time.Second, 10 * time.Minute
	for name, test := range map[string]struct {
		last           time.Duration // the last event of the process
		busy           int           // the slot whose process begins other work later
		pooled, walkIn bool
		rest           time.Duration // until others may have it, if the process dies
		seen           time.Duration // when the owner was seen again
		want           bool
	}{
		"a live process": {last: live, want: true},
		"a live process that begins no other work": {last: live, busy: 1},
		"a process that died before":               {last: before, busy: 1}, // the server executes its claim later
		"a process that died":                      {last: soon, busy: 1, want: true},
		"a pooled process that died":               {last: soon, busy: 1, pooled: true}, // its lease has to end
		"a live pooled process":                    {last: live, pooled: true, want: true},
		"a WalkIn of a process that died":          {last: soon, busy: 1, walkIn: true}, // nobody has to call
		"a WalkIn whose owner is not seen again":   {last: live, walkIn: true},
		"a WalkIn whose owner is seen again":       {last: live, walkIn: true, seen: 8 * time.Minute, want: true},
		"a rest, and its owner is not seen again":  {last: live, rest: time.Hour},
		"a rest, and its owner is seen again":      {last: live, rest: time.Hour, seen: 8 * time.Minute, want: true},
	} {
		r := kept(t, journal.OK, "completed")
		if test.walkIn {
			r = keptOf(keyOf(t, func(p journal.Plan) bool { return p.WalkIn }), "completed")
		}
		taken := r.moved("running", "", 1)
		taken.At, taken.Attempts, taken.Pooled, taken.Rest = 2*time.Minute, 1, test.pooled, test.rest
		r.moves, r.stop = append(r.moves, taken), 9*time.Minute
		r.events = append(r.events, journal.Event{Kind: journal.KindExit, Op: history.NewOp(0, 0, 900), At: test.last},
			journal.Event{Kind: journal.KindBegin, Op: history.NewOp(test.busy, 0, 902), Operation: "another", At: r.stop})
		if test.seen > 0 {
			r.former = &journal.Operation{ID: "former", Key: r.operation.Key, State: "undone"}
			r.moves = append(r.moves, &journal.Move{Operation: "former", State: "running", Owner: taken.Owner, At: test.seen})
		}
		if found := r.audited(t); slices.Contains(found, rule.Woken) != test.want {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

// Cancel waits for the answer of a call in progress, unless its process was harmed.
func TestFiles_WantsCancelToWait(t *testing.T) {
	t.Parallel()
	key := keyOf(t, func(p journal.Plan) bool { return p.Rounds[0].Call == journal.Once && p.Rounds[0].Day == journal.Day{} })
	run := history.NewOp(0, 0, 1)
	for name, test := range map[string]struct {
		heard, end, last time.Duration // the answer, the end of the run, and the last event of the process
		want             bool
	}{
		"a run in progress":                       {3 * time.Second, 4 * time.Second, 6 * time.Second, true},
		"a process that ended before the parking": {3 * time.Second, 4 * time.Second, 4500 * time.Millisecond, false},
		"a run that ended before Cancel":          {1200 * time.Millisecond, 1500 * time.Millisecond, 6 * time.Second, false},
	} {
		r := &told{
			operation: &journal.Operation{ID: "id", Key: key, State: "undone", Canceled: true},
			record:    &journal.Record{ID: "another"},
			events: []journal.Event{
				{Kind: journal.KindBegin, Op: run, Operation: "id", At: time.Second},
				{Kind: journal.KindHeard, Op: run, Operation: "id", At: test.heard, Name: "charge-1", Value: "receipt"},
				{Kind: journal.KindEnd, Op: run, Operation: "id", At: test.end},
				{Kind: journal.KindBegin, Op: history.NewOp(0, 0, 2), Operation: "another", At: test.last},
			},
			moves: []*journal.Move{
				{Operation: "id", State: "running", Epoch: 1, Owner: 1, At: time.Second, Step: "charge-1"},
				{Operation: "id", State: "running", Epoch: 2, Canceled: true, By: 9, At: 2 * time.Second, Step: "charge-1"},
				{Operation: "id", State: "parked", Epoch: 3, Canceled: true, By: 9, At: 5 * time.Second, Step: "charge-1",
					Reason: "call_in_doubt", ReasonStep: "charge-1"},
			},
		}
		if found := r.audited(t); slices.Contains(found, rule.Waits) != test.want {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

// An earlier release charged card A, in a round whose charge was taken out later.
func TestFiles_WantsTheUndosOfATakenOutCharge(t *testing.T) {
	t.Parallel()
	key := keyOf(t, func(p journal.Plan) bool {
		first := p.Rounds[0]
		return first.Call != "" && first.Day.Change == journal.TakenOut && first.Undos == 1
	})
	for undos, want := range []bool{true, false} {
		r := keptOf(key, "completed")
		r.steps = []*journal.Step{{Operation: "id", Kind: "call", Name: "card-1", Outcome: "done", Undos: undos}}
		if found := r.audited(t); slices.Contains(found, rule.UndoneOnce) != want {
			t.Errorf("%d undos: found %q", undos, found)
		}
	}
}

// An Asked call was not made, as the bank has answered. New code then takes a step before it.
func TestFiles_AcceptAStepBeforeACallThatWasNotMade(t *testing.T) {
	t.Parallel()
	key := keyOf(t, func(p journal.Plan) bool {
		isAsked := p.Rounds[0].Call == journal.Asked
		p.Rounds[0].Call = journal.Keyed
		return isAsked && plain(journal.OK)(p)
	})
	for name, test := range map[string]struct {
		kind   string        // of the call in the row of the operation
		booked time.Duration // by the bank
		want   bool
	}{
		"not made":                 {"", 11 * time.Second, false},
		"still in doubt":           {"call", 11 * time.Second, true},
		"not made, but was booked": {"", 6 * time.Second, true},
	} {
		r := keptOf(key, "completed")
		asked := r.entries[0]
		asked.Booked, asked.At = false, 5*time.Second
		r.entries[0].At, r.entries[1].At = test.booked, 20*time.Second
		r.entries = append(r.entries, asked)
		r.steps[0].Recorded = 10 * time.Second
		r.moves = append(r.moves, &journal.Move{Operation: "id", State: "running", Epoch: 1, Kind: test.kind, Step: "charge-1", At: 9 * time.Second})
		if found := r.audited(t); slices.Contains(found, rule.InDoubt) != test.want {
			t.Errorf("%s: found %q", name, found)
		}
	}
}

// After Cancel WithoutCode, a person resolves an undo in doubt as not made, and the code does not
// have it.
func TestFiles_AcceptAnUndoThatTheCodeLacks(t *testing.T) {
	t.Parallel()
	for _, inDoubt := range []bool{true, false} {
		r := completedOrFailed(t)("failed")
		r.operation.WithoutCode = true
		last, first := journal.UndoOf("charge-1", 1), journal.UndoOf("charge-1", 0)
		for i := range r.entries {
			if r.entries[i].Step == first {
				r.entries[i].Step = last
			}
		}
		for _, s := range r.steps {
			switch s.Name {
			case "charge-1":
				s.Undos = 2
			case first:
				s.Name = last
			}
		}
		if inDoubt {
			m := r.moved("parked", "call_in_doubt", 0)
			m.Kind = "undo"
			r.moves = append(r.moves, m)
		}
		if found := r.audited(t); slices.Contains(found, rule.UndoneOnce) == inDoubt {
			t.Errorf("in doubt %t: found %q", inDoubt, found)
		}
	}
}
