package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Histories that break no promise must be accepted. Otherwise the next test would prove nothing.
func TestHistoriesThatKeepThePromisesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(*story){
		"executed, replayed, a mismatch, expired and executed again": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(2, 5, 40, replays(first))
			s.call(3, 20, 30, mismatches(first))
			s.record(s.call(4, 200, 210, s.executes("y")))
		},
		"a rejection of a call that never returned, of which a purge tells": func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			second := s.call(2, 200, 210, rejects("y"))
			s.purge(second)
			neverReturns(second)
		},
		"a record that is purged while the clock is ahead, and the key is executed again when it was set back": func(s *story) {
			s.options.ClockMoved = []Interval{{ms(40), ms(41)}, {ms(60), ms(61)}}
			s.purge(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Expires += us(1000) }))
			s.record(s.call(2, 900, 910, s.executes("y")))
		},
		"an execution by whose times the record before it is retained, during which the clock jumped": func(s *story) {
			s.options.ClockMoved = []Interval{{ms(205), ms(206)}}
			s.executedByASlowClock()
		},
		"in progress while somebody else is": func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 10, answers(history.InProgress))
			s.record(s.call(2, 5, 20, s.executes("x")))
		},
		"a DoTx that was committed": func(s *story) {
			first := s.call(1, 0, 10, verb("DoTx"), s.executes("x"))
			s.outer(first, "before", "executed")
			s.record(first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{}
			tell(s)
			if diff := cmp.Diff([]rule.Rule(nil), s.broken(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// executedByASlowClock adds an execution whose times say that the record before it has not expired.
func (s *story) executedByASlowClock() {
	s.call(1, 0, 10, s.executes("x"))
	second := s.call(2, 200, 210, s.executes("y"))
	s.state.Effects[1].Noted, second.Created, second.Completed, second.Expires = us(50), us(50), us(50), us(150)
	s.record(second)
}

// broken has one history for each way to break a promise: the rule that it breaks, and the mutants
// whose history it is.
var broken = map[string]struct {
	want    rule.Rule
	mutants string
	tell    func(*story)
}{
	"two executions in one retention period": {rule.Once, "no-key, takeover, forgotten-record", func(s *story) {
		s.call(1, 0, 10, s.executes("x"))
		s.record(s.call(2, 20, 30, s.executes("y")))
	}},
	"an acknowledged success without its effect": {rule.Success, "", func(s *story) {
		s.executed()
		s.without("x")
	}},
	"an acknowledged success without its record": {rule.LastRecord, "", func(s *story) {
		s.call(1, 0, 10, s.executes("x"))
	}},
	"the record of the last execution is gone, and an earlier one was purged": {rule.LastRecord, "", func(s *story) {
		s.purge(s.call(1, 0, 10, s.executes("x")))
		s.call(2, 300, 310, s.executes("y"))
	}},
	"a record that is purged before its time, and the key is executed again": {rule.Once, "purge-unchecked", func(s *story) {
		s.purge(s.call(1, 0, 10, s.executes("x")))
		s.record(s.call(2, 20, 30, s.executes("y")))
	}},
	"a record that is purged, of a key that is executed again before it expires": {rule.Once, "", func(s *story) {
		s.purge(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Expires += us(1000) }))
		s.record(s.call(2, 900, 910, s.executes("y")))
	}},
	"an execution by whose times the record before it is retained, with no jump of the clock": {rule.Once, "", (*story).executedByASlowClock},
	"a record that no call made, and a purge deleted": {rule.RecordMade, "", func(s *story) {
		s.purge(s.call(1, 0, 10, rejects("x")))
		s.operations = nil
	}},
	"a rejection without its record": {rule.LastRecord, "", func(s *story) {
		s.call(1, 0, 10, rejects("x"))
	}},
	"an error of a call that has committed": {rule.Nothing, "lost-is-an-error, failure-commits", func(s *story) {
		first := s.executed()
		first.Return = history.Return{Outcome: history.FnFailed}
	}},
	"the end of the context, in a call that has committed": {rule.Nothing, "context-abandons-commit", func(s *story) {
		first := s.executed()
		first.Return = history.Return{Outcome: history.Cancelled}
	}},
	"an error of a call whose rejection was recorded": {rule.Nothing, "", func(s *story) {
		first := s.call(1, 0, 10, rejects("x"))
		s.record(first)
		first.Return = history.Return{Outcome: history.Failed}
	}},
	"the replay of another's response by a call that has executed": {rule.Nothing, "", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		second := s.call(2, 200, 210, s.executes("y"))
		s.record(second)
		first.End = ms(230)
		replays(second)(first)
	}},
	"ErrTxEnded of a call that has committed": {rule.Nothing, "", func(s *story) {
		first := s.executed()
		first.Return = history.Return{Outcome: history.Ended}
	}},
	"a response that is not the one committed": {rule.Bytes, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first)).Digest = "another"
	}},
	"a record whose response is not the one committed": {rule.Bytes, "", func(s *story) {
		s.record(s.call(1, 0, 10, s.executes("x"))).Digest = "another"
	}},
	"a response that is sealed and not opened": {rule.Readable, "", func(s *story) {
		s.executed()
		s.call(2, 20, 30, answers(history.Unreadable))
	}},
	"a replay that says another time": {rule.Times, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first)).Expires++
	}},
	"a replay that says rejected": {rule.Rejection, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first)).Rejected = true
	}},
	"a replay to another request": {rule.Hash, "no-hash, no-hash-in-memory", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first), payload("B"))
	}},
	"a replay of what belongs to another key": {rule.OwnKey, "wrong-key", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		s.call(2, 20, 30, replays(first))
		s.operations, s.state.Effects = s.operations[1:], nil
	}},
	"a replay whose response names another call": {rule.OwnMaker, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first)).Maker++
	}},
	"a replay of what has no effect": {rule.Replayed, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first))
		neverReturns(first)
		s.without("x")
	}},
	"a replay after the expiry": {rule.Expired, "no-expiry", func(s *story) {
		first := s.executed()
		s.call(2, 200, 210, replays(first))
	}},
	"a rejection with an effect": {rule.Reject, "reject-keeps", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		first.Rejected = true
		s.record(first)
	}},
	"a call that executed and answers with another's": {rule.OwnAnswer, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, replays(first), func(o *history.Operation) { o.Outcome = history.Executed })
	}},
	"two effects of one operation": {rule.OneEffect, "", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		s.state.Effects = append(s.state.Effects, s.state.Effects[0])
		s.record(first)
	}},
	"an effect that no call made": {rule.EffectMade, "", func(s *story) {
		s.executed()
		s.operations = nil
	}},
	"a record that no call made": {rule.RecordMade, "", func(s *story) {
		s.record(s.call(1, 0, 10, rejects("x")))
		s.operations = nil
	}},
	"a DoTx without its caller's writes": {rule.Joined, "", func(s *story) {
		s.record(s.call(1, 0, 10, verb("DoTx"), s.executes("x")))
	}},
	"the writes of a caller without the DoTx": {rule.Joined, "", func(s *story) {
		s.outer(s.call(1, 0, 10, verb("DoTx"), neverReturns), "before", "executed")
	}},
	"what a caller of DoTx rolled back": {rule.Undone, "", func(s *story) {
		s.outer(s.call(1, 0, 10, verb("DoTx"), answers(history.Undone)), "before", "refused")
	}},
	"a finding in the database": {"any rule of the ledger", "", func(s *story) {
		s.state.Findings = append(s.state.Findings, rule.Violation{Rule: "any rule of the ledger"})
	}},
	"a replay before the execution began": {rule.Order, "", func(s *story) {
		first := s.call(1, 20, 30, s.executes("x"))
		s.record(first)
		s.call(2, 0, 10, replays(first))
	}},
	"a replay of the one before, when the next has answered": {rule.Order, "", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		second := s.call(2, 200, 210, s.executes("y"))
		s.record(second)
		s.call(3, 220, 230, replays(first)).Wall = us(100) // its clock is wrong
	}},
	"a mismatch with nothing": {rule.Order, "", func(s *story) {
		first := s.call(1, 20, 30, s.executes("x"))
		s.record(first)
		s.call(2, 0, 10, mismatches(first))
	}},
	"a mismatch with the same request": {rule.Order, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, mismatches(first), payload("A"))
	}},
	"a mismatch that tells of another record": {rule.Order, "", func(s *story) {
		first := s.executed()
		s.call(2, 20, 30, mismatches(first)).Created++
	}},
	"in progress although the answer is known": {rule.Live, "never-loads", func(s *story) {
		first := s.call(1, 0, 10, lasting("x", s))
		s.record(first)
		s.call(2, 20, 30, answers(history.InProgress))
	}},
	"in progress in a DoTx although the answer is known, whatever its process does meanwhile": {rule.Live, "", func(s *story) {
		first := s.call(1, 0, 10, lasting("x", s))
		s.record(first)
		s.call(2, 20, 200, process(7), replays(first))
		s.call(3, 30, 60, process(7), verb("DoTx"), answers(history.InProgress))
	}},
	"a long wait that is in vain although the holder has failed": {rule.Holder, "", func(s *story) {
		s.options.Undisturbed = true
		s.call(1, 0, 20, answers(history.FnFailed))
		s.call(2, 10, 3010, waits(3000), answers(history.InProgress))
		s.call(3, 30, 3030, waits(3000), answers(history.InProgress))
	}},
	"a success of a fn that ended its transaction": {rule.Told, "claim-unchecked", func(s *story) {
		s.record(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Fn = history.CommitSQL }))
	}},
	"in progress where nobody else had asked": {rule.Free, "", func(s *story) {
		s.options.Undisturbed = true
		s.call(1, 0, 10, answers(history.InProgress))
		s.record(s.call(2, 10, 20, s.executes("x")))
	}},
	"a rejection that is executed over": {rule.Once, "", func(s *story) {
		s.call(1, 0, 10, rejects("x"))
		s.record(s.call(2, 20, 30, s.executes("y")))
	}},
	"a call killed after COMMIT that is executed again": {rule.Once, "two-transactions", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		neverReturns(first)
		s.record(s.call(2, 20, 30, s.executes("y")))
	}},
	"a duplicate of another process shares an answer that expired before it came": {rule.Expired, "", func(s *story) {
		first := s.call(1, 0, 10, s.executes("x"))
		s.call(3, 90, 230, process(7), replays(first))
		s.call(4, 220, 231, process(8), replays(first))
		s.record(first)
	}},
	"a live successor of an expired record is taken over": {rule.Once, "takeover-unchecked", func(s *story) {
		s.call(1, 0, 10, s.executes("x"))
		s.call(2, 200, 220, s.executes("y"))
		s.record(s.call(3, 200, 230, s.executes("z")))
	}},
	"a call that executes again under another id": {rule.Once, "lost-is-rolled-back", func(s *story) {
		first := s.call(1, 0, 30, s.executes("x"))
		s.executes("y")(first)
		s.record(first)
	}},
	"a run of fn although the record lives": {rule.Order, "the model only", func(s *story) {
		s.executed()
		s.call(2, 20, 30, answers(history.FnFailed), func(o *history.Operation) { o.Runs = []history.Run{{At: ms(25), ExecutionID: "y"}} })
	}},
}

func TestHistoriesThatBreakAPromiseAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{}
			test.tell(s)
			if broken := s.broken(t); !slices.Contains(broken, test.want) {
				t.Errorf("broken: %q, want %q", broken, test.want)
			}
		})
	}
}

// The model alone must refuse a history of each mutant that it has, without the rules. The exception
// is one-lock, whose histories only the rule about free keys refuses.
func TestModel_RefusesAHistoryOfEachMutant(t *testing.T) {
	t.Parallel()
	for name, test := range broken {
		if test.mutants == "" {
			continue
		}
		t.Run(test.mutants+": "+name, func(t *testing.T) {
			t.Parallel()
			s := &story{}
			test.tell(s)
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

// A failover to a standby that lags behind loses key and effect together. Earlier commits stay. An
// execution of a killed process may show only in the mismatches of other calls.
func TestLossesAreAllowedOnlyWhereThereWasOne(t *testing.T) {
	t.Parallel()
	acknowledged := func(s *story) {
		s.call(1, 1000, 1010, s.executes("x"))
		s.without("x")
		s.record(s.call(2, 1030, 1040, s.executes("y")))
	}
	effectOnly := func(s *story) {
		s.record(s.call(1, 1000, 1010, s.executes("x")))
		s.without("x")
	}
	mismatch := func(s *story) {
		killed := s.call(1, 1000, 1010, s.executes("x"))
		s.call(2, 1030, 1040, mismatches(killed))
		s.without("x")
		neverReturns(killed)
	}
	for name, test := range map[string]struct {
		tell   func(*story)
		losses []Interval
		kept   bool
	}{
		"no failover":                 {acknowledged, nil, false},
		"in the second failover":      {acknowledged, []Interval{{ms(10), ms(20)}, {ms(1005), ms(1020)}}, true},
		"long before a failover":      {acknowledged, []Interval{{ms(5000), ms(6000)}}, false},
		"after a failover":            {acknowledged, []Interval{{ms(10), ms(20)}}, false},
		"the effect without its key":  {effectOnly, []Interval{{ms(1005), ms(1020)}}, false},
		"a mismatch, no failover":     {mismatch, nil, false},
		"a mismatch, then a failover": {mismatch, []Interval{{ms(1060), ms(1080)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{options: Options{Losses: test.losses}}
			test.tell(s)
			if broken := s.broken(t); (len(broken) == 0) != test.kept {
				t.Errorf("broken: %q", broken)
			}
		})
	}
}

// A key whose history is too large for the model is reported as unchecked, not as correct.
func TestAKeyWithTooManyCallsAtOnceIsUnchecked(t *testing.T) {
	t.Parallel()
	s := &story{}
	first := s.call(1, 0, 1000, s.executes("x"))
	for n := range uint32(300) {
		s.call(10+n, 1+int(n), 1000+int(n), replays(first))
	}
	s.record(first)
	result := judge(s.operations, &s.state, &s.options)
	if len(result.Unchecked) != 1 {
		t.Errorf("unchecked %v, violations %v", result.Unchecked, result.Violations)
	}
}
