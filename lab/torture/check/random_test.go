package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// executor is a correct implementation of the library with a clock in milliseconds. Each call takes
// effect at one moment, and its beginning and end are drawn around that moment.
type executor struct {
	story
	r    *rand.Rand
	now  int
	last *history.Operation // whose record is the key's last; its times are there even if it never returned
	live int                // until when it is retained
	made map[*history.Operation]history.Return
}

func randomStory(seed uint64) *executor {
	e := &executor{r: rand.New(rand.NewPCG(seed, 0)), now: 100, live: -1, made: make(map[*history.Operation]history.Return)}
	for n := range uint32(10 + e.r.IntN(60)) {
		e.now += 1 + e.r.IntN(30)
		if e.r.IntN(12) == 0 {
			e.now += ttl
		}
		e.step(n + 1)
	}
	if e.last != nil {
		answer := e.made[e.last]
		e.record(&history.Operation{Call: e.last.Call, Return: answer})
	}
	return e
}

func (e *executor) step(n uint32) {
	change := []func(*history.Operation){payload(string(rune('A' + e.r.IntN(2))))}
	from, to := e.now-1-e.r.IntN(40), e.now+1+e.r.IntN(40)
	if e.now <= e.live {
		e.duplicate(e.call(n, from, to, change...))
		return
	}
	o := e.call(n, from, to, change...)
	id := fmt.Sprint("operation ", n)
	switch e.r.IntN(6) {
	case 0:
		o.Runs = []history.Run{{At: ms(e.now), ExecutionID: id}}
		o.Return = history.Return{Outcome: choose(e.r, history.FnFailed, history.Aborted, history.Cancelled, history.Failed)}
		return
	case 1:
		o.Runs = []history.Run{{At: ms(e.now), ExecutionID: id}}
		neverReturns(o)
		return
	case 2:
		e.execute(o, id)
		e.rows = e.rows[:len(e.rows)-1]
		o.Fn, o.Rejected = "reject", true
	default:
		e.execute(o, id)
	}
	e.made[o], e.last, e.live = o.Return, o, e.now+ttl
	switch e.r.IntN(5) {
	case 0:
		neverReturns(o)
	case 1:
		o.Return = history.Return{Outcome: history.Unknown, ExecutionID: id}
	}
}

// execute is executes, at the moment that was drawn.
func (e *executor) execute(o *history.Operation, id string) {
	e.executes(id)(o)
	o.Created, o.Completed, o.Expires = us(e.now)-1, us(e.now)+1, us(e.now+ttl)+1
	e.rows[len(e.rows)-1].Effect.Noted = us(e.now)
}

func (e *executor) duplicate(o *history.Operation) {
	answer := e.made[e.last]
	switch {
	case e.r.IntN(8) == 0:
		answers(choose(e.r, history.InProgress, history.Cancelled, history.Failed))(o)
	case e.r.IntN(12) == 0:
		neverReturns(o)
	case o.Payload != e.last.Payload:
		o.Return = history.Return{Outcome: history.Mismatch, Created: answer.Created}
	default:
		o.Return = answer
		o.Outcome = history.Replayed
	}
}

func choose[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// corruptions change one thing so that a promise is broken. They return false if nothing can be
// changed.
var corruptions = map[string]func(*executor) bool{
	"an effect is gone": func(e *executor) bool {
		o := e.some(func(o *history.Operation) bool { return o.Outcome == history.Executed && !o.Rejected })
		if o != nil {
			e.without(o.ExecutionID)
		}
		return o != nil
	},
	"an effect is there twice": func(e *executor) bool {
		i := slices.IndexFunc(e.rows, func(r ledger.Row) bool { return r.Effect != nil })
		if i >= 0 {
			e.rows = append(e.rows, e.rows[i])
		}
		return i >= 0
	},
	"the record is gone": func(e *executor) bool {
		before := len(e.rows)
		e.rows = slices.DeleteFunc(e.rows, func(r ledger.Row) bool { return r.Record != nil })
		// No other call may have seen the rejection.
		return len(e.rows) < before && (e.last.Outcome == history.Executed || !e.made[e.last].Rejected)
	},
	"a call that executed returns an error": func(e *executor) bool {
		o := e.some(func(o *history.Operation) bool { return o.Outcome == history.Executed && !o.Rejected })
		if o != nil {
			o.Return = history.Return{Outcome: history.Failed}
		}
		return o != nil
	},
	"a replay has another body": func(e *executor) bool {
		o := e.some(replayed)
		if o != nil {
			o.Digest = "another"
			// Without another observation of the response, the change contradicts nothing.
			return slices.ContainsFunc(e.operations, func(p *history.Operation) bool {
				return p != o && p.Outcome.Answered() && p.ExecutionID == o.ExecutionID
			})
		}
		return false
	},
	"a replay is for another request": func(e *executor) bool {
		o := e.some(replayed)
		if o != nil {
			o.Payload = "C"
		}
		return o != nil
	},
	"a replay comes before its execution": func(e *executor) bool {
		o := e.some(replayed)
		if o != nil {
			o.Begin, o.End, o.Wall = 0, ms(1), 0
		}
		return o != nil
	},
	"a replay comes long after": func(e *executor) bool {
		o := e.some(replayed)
		if o != nil {
			o.Begin, o.End, o.Wall = ms(1_000_000), ms(1_000_001), us(1_000_000)
		}
		return o != nil
	},
	"a mismatch tells of another time": func(e *executor) bool {
		o := e.some(func(o *history.Operation) bool { return o.Outcome == history.Mismatch })
		if o != nil {
			o.Created += us(1)
			// If the times of a record are unknown, the changed time may be true.
			unheard := slices.ContainsFunc(e.operations, func(p *history.Operation) bool { return !p.Outcome.Answered() && len(p.Runs) > 0 })
			return !unheard && slices.ContainsFunc(e.operations, func(p *history.Operation) bool {
				return p.Outcome.Answered() && p.Created == o.Created-us(1)
			})
		}
		return false
	},
	"another execution in the same period": func(e *executor) bool {
		o := e.some(func(o *history.Operation) bool { return o.Outcome == history.Executed })
		if o == nil {
			return false
		}
		at := int(o.Completed/1000) + ttl/2
		again := e.call(1000, at-1, at+1)
		now := e.now
		e.now = at
		e.execute(again, "one too many")
		e.now = now
		return true
	},
}

func replayed(o *history.Operation) bool { return o.Outcome == history.Replayed }

// some returns a random call that satisfies the test, or nil.
func (e *executor) some(fits func(*history.Operation) bool) *history.Operation {
	var fitting []*history.Operation
	for _, o := range e.operations {
		if fits(o) {
			fitting = append(fitting, o)
		}
	}
	if len(fitting) == 0 {
		return nil
	}
	return choose(e.r, fitting...)
}

// verdict returns the result of the checker for a story.
func (s *story) verdict() *Result {
	result := &Result{Tally: newTally()}
	slices.SortFunc(s.operations, func(a, b *history.Operation) int { return int(a.Begin - b.Begin) })
	result.add(s.operations, s.rows, &s.options)
	return result
}

func FuzzCheckerTellsRightFromWrong(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		if v := randomStory(seed).verdict(); len(v.Violations) > 0 || len(v.Unchecked) > 0 {
			t.Fatalf("a history that is right was refused: %v %v", v.Violations, v.Unchecked)
		}
		for name, corrupt := range corruptions {
			e := randomStory(seed)
			if !corrupt(e) {
				continue
			}
			if v := e.verdict(); len(v.Violations) == 0 {
				t.Errorf("not noticed: %s", name)
			}
		}
	})
}

// Leaving out redundant reads must not change the result.
func TestLeavingOutReadsChangesNoVerdict(t *testing.T) {
	t.Parallel()
	left := 0
	for seed := range uint64(200) {
		e := randomStory(seed)
		if seed%2 == 1 {
			corruptions["a replay comes before its execution"](e)
		}
		for _, k := range gather(e.operations, e.rows, &e.options) {
			k.trace()
			all, needed := append(k.writes(), k.reads()...), k.steps()
			left += len(all) - len(needed)
			if some, every := k.order(needed), k.order(all); some != every {
				t.Errorf("seed %d: %v with what is essential, %v with everything", seed, some, every)
			}
		}
	}
	if left == 0 {
		t.Error("nothing was left out")
	}
}
