package check

import (
	"testing"

	"github.com/idem-go/idem/lab/torture/history"
)

// The model alone must refuse a history of each mutant that it has, without the rules. The exception
// is one-lock, whose histories only the rule about free keys refuses.
func TestModel_RefusesAHistoryOfEachMutant(t *testing.T) {
	t.Parallel()
	twice := func(change func(*history.Operation)) func(*story) {
		return func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(s.call(2, 20, 30, s.executes("y")))
			change(first)
		}
	}
	for name, tell := range map[string]func(*story){
		"no-key, takeover, forgotten-record: two executions": twice(func(*history.Operation) {}),
		"two-transactions: killed between them":              twice(neverReturns),
		"takeover-unchecked: a live successor is taken over": func(s *story) {
			s.call(1, 0, 10, s.executes("x"))
			s.call(2, 200, 220, s.executes("y"))
			s.record(s.call(3, 200, 230, s.executes("z")))
		},
		"never-loads: in progress although the answer is known": func(s *story) {
			s.record(s.call(1, 0, 10, lasting("x", s)))
			s.call(2, 20, 30, answers(history.InProgress))
		},
		"no-hash, no-hash-in-memory: a replay of another request": func(s *story) {
			first := s.executed()
			s.call(2, 20, 30, replays(first), payload("B"))
		},
		"no-expiry: a replay after the expiry": func(s *story) {
			first := s.executed()
			s.call(2, 200, 210, replays(first))
		},
		"lost-is-rolled-back: executed again under another id": func(s *story) {
			first := s.call(1, 0, 30, s.executes("x"))
			s.executes("y")(first)
			s.record(first)
		},
		"lost-is-an-error, context-abandons-commit, failure-commits: an error, and the effect": func(s *story) {
			first := s.executed()
			answers(history.FnFailed)(first)
		},
		"reject-keeps: a rejection with an effect": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			first.Rejected = true
			s.record(first)
		},
		"claim-unchecked: a success of a fn that ended its transaction": func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Fn = history.RestartSQL }))
		},
		"wrong-key: a replay of an execution of another key": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(2, 20, 30, replays(first))
			s.operations, s.state.Effects = s.operations[1:], nil
		},
		"purge-unchecked: executed again after a purge of a live record": func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			s.record(s.call(2, 20, 30, s.executes("y")))
		},
		"a run of fn although the record lives": func(s *story) {
			s.executed()
			s.call(2, 20, 30, answers(history.FnFailed), func(o *history.Operation) { o.Runs = []history.Run{{At: ms(25), ExecutionID: "y"}} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{}
			tell(s)
			for _, k := range gather(s.operations, &s.state, &s.options) {
				k.trace()
				k.violations = nil
				if steps, complete := k.accept(); !complete || len(k.violations) != 1 {
					t.Errorf("accepted in %d steps, complete: %t", steps, complete)
				}
			}
		})
	}
}
