package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// owned adds a claim by the worker of slot 0 before everything else, and a release after it.
func (r *told) owned(given *journal.Move) {
	taken := *given
	taken.Owner, taken.State, taken.At, taken.Attempts = 1, "running", time.Nanosecond, 1
	r.moves = append(r.moves, &taken, given)
}

func TestFiles_FindsEachBrokenPromiseOfADay(t *testing.T) {
	t.Parallel()
	ask := func(r *told, step, place, key string, at time.Duration) {
		r.entries = append(r.entries, journal.Entry{Operation: "id", Step: step, Place: place, Key: key, At: at})
	}
	heard := func(r *told, at time.Duration) {
		r.events = append(r.events, journal.Event{Kind: journal.KindHeard, Op: history.NewOp(0, 0, 500), At: at, Operation: "id", Name: "charge-2", Value: "receipt"})
	}
	wantFound(t, []broken{
		{"a call that was begun is not on record", rule.InDoubt, "completed", func(r *told) { ask(r, "charge-7", "place 7", "a", time.Second) }},
		{"a step is put in front of a call that was begun", rule.InDoubt, "completed", func(r *told) { r.steps[0].Recorded = 10 * time.Second }},
		{"a charge under two keys", rule.OneKey, "completed", func(r *told) { ask(r, "charge-1", journal.Place(1), "another", 10*time.Second) }},
		{"the answer does not know of a charge", rule.Stands, "completed", func(r *told) { delete(r.record.Answer.Paid, journal.Place(1)) }},
		{"an answer of the bank is forgotten", rule.Kept, "completed", func(r *told) {
			heard(r, 30*time.Second)
			m := r.moved("running", "", 0)
			delete(m.Known, "charge-2")
			r.owned(m)
		}},
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

// Cancel waits for the answer of a call in progress, unless its process was harmed.
func TestFiles_FindsACancelThatDoesNotWait(t *testing.T) {
	t.Parallel()
	key := keyOf(t, func(p journal.Plan) bool { return p.Rounds[0].Call == journal.Once && p.Rounds[0].Day == journal.Day{} })
	run := history.NewOp(0, 0, 1)
	r := &told{
		operation: &journal.Operation{ID: "id", Key: key, State: "undone", Canceled: true},
		record:    &journal.Record{ID: "another"},
		events: []journal.Event{
			{Kind: journal.KindBegin, Op: run, Operation: "id", At: time.Second},
			{Kind: journal.KindHeard, Op: run, Operation: "id", At: 3 * time.Second, Name: "charge-1", Value: "receipt"},
			{Kind: journal.KindEnd, Op: run, Operation: "id", At: 4 * time.Second},
		},
		moves: []*journal.Move{
			{Operation: "id", State: "running", Epoch: 1, Owner: 1, At: time.Second, Step: "charge-1"},
			{Operation: "id", State: "running", Epoch: 2, Canceled: true, By: 9, At: 2 * time.Second, Step: "charge-1"},
			{Operation: "id", State: "parked", Epoch: 3, Canceled: true, By: 9, At: 5 * time.Second, Step: "charge-1",
				Reason: "call_in_doubt", ReasonStep: "charge-1"},
		},
	}
	if found := r.audited(t); !slices.Contains(found, rule.Waits) {
		t.Errorf("found %q", found)
	}
}

// After the end of the context of a run, an error is not an answer, but a receipt is.
//
// A process has two pools and therefore two instances. When a lease ends, both may run an operation
// at the same time. The instance that lost it records nothing.
func TestFiles_FindsAnAnswerThatWasForgotten(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value      string
		left       bool
		begin, end time.Duration // of another run of the same process
		found      bool
	}{
		{value: journal.Declined, left: true}, {value: journal.Declined, found: true}, {value: "receipt", left: true, found: true},
		{value: "receipt", begin: 2 * time.Second, end: 32 * time.Second},
		{value: "receipt", begin: 2 * time.Second},
		{value: "receipt", begin: 2 * time.Second, end: 3 * time.Second, found: true},
		{value: "receipt", begin: 40 * time.Second, end: 41 * time.Second, found: true},
	} {
		r := kept(t, journal.OK, "completed")
		run := history.NewOp(0, 0, 500)
		if test.begin > 0 {
			r.runs(test.begin, test.end, 0)
		}
		r.events = append(r.events, journal.Event{Kind: journal.KindBegin, Op: run, Operation: "id", At: 20 * time.Second},
			journal.Event{Kind: journal.KindHeard, Op: run, At: 30 * time.Second, Operation: "id", Name: "charge-2", Value: test.value},
			journal.Event{Kind: journal.KindEnd, Op: run, Operation: "id", At: 31 * time.Second, Left: test.left})
		m := r.moved("running", "", 0)
		delete(m.Known, "charge-2")
		r.owned(m)
		if found := slices.Contains(r.audited(t), rule.Kept); found != test.found {
			t.Errorf("%+v: found: %t", test, found)
		}
	}
}

// A server may execute a claim of a process that has died.
func TestFiles_WantsNoWorkOfADeadProcess(t *testing.T) {
	t.Parallel()
	const at = 2 * time.Minute
	walkIn := func(p journal.Plan) bool { return p.WalkIn }
	for _, test := range []struct {
		last   time.Duration // the last line of the process
		pooled bool
		plan   func(journal.Plan) bool
		rest   time.Duration // until others may have it, if the process dies
		seen   time.Duration // when its number was last seen
		idle   bool          // the process begins no other run
		found  bool
	}{
		{last: time.Minute}, {last: 10 * time.Minute, found: true}, {last: 10 * time.Minute, pooled: true, found: true},
		{last: 10 * time.Minute, idle: true},
		{last: at + time.Second, found: true},  // others see that it is gone
		{last: at + time.Second, pooled: true}, // others see that its lease is over
		{last: at + time.Second, plan: walkIn}, // no Worker has it, and nobody need call
		{last: 10 * time.Minute, plan: walkIn}, // its process may have lost its number
		{last: 10 * time.Minute, plan: walkIn, seen: 8 * time.Minute, found: true},
		{last: 10 * time.Minute, rest: time.Hour}, // a suspect waits for its turn
		{last: 10 * time.Minute, rest: time.Hour, seen: 8 * time.Minute, found: true},
	} {
		r := kept(t, journal.OK, "completed")
		if test.plan != nil {
			r = keptOf(keyOf(t, test.plan), "completed")
		}
		r.stop = 9 * time.Minute
		r.events = append(r.events, journal.Event{Kind: journal.KindExit, Op: history.NewOp(0, 0, 900), At: test.last})
		busy := history.NewOp(1, 0, 902)
		if test.last == 10*time.Minute {
			busy = history.NewOp(0, 0, 902)
		}
		if !test.idle {
			r.events = append(r.events, journal.Event{Kind: journal.KindBegin, Op: busy, Operation: "another", At: 9 * time.Minute})
		}
		taken := r.moved("running", "", 1)
		taken.At, taken.Attempts, taken.Pooled, taken.Rest = at, 1, test.pooled, test.rest
		r.moves = append(r.moves, taken)
		if test.seen > 0 {
			r.former = &journal.Operation{ID: "former", Key: r.operation.Key, State: "undone"}
			r.moves = append(r.moves, &journal.Move{Operation: "former", State: "running", Owner: taken.Owner, At: test.seen})
		}
		if found := slices.Contains(r.audited(t), rule.Woken); found != test.found {
			t.Errorf("%+v: found: %t", test, found)
		}
	}
}
