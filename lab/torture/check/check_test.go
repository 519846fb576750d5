package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// The checker must accept everything that the library is allowed to do.
func TestHistoriesThatKeepThePromisesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(*story){
		"nothing happened": func(s *story) {},
		"an execution and its replays": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(2, 20, 30, replays(first))
			s.call(3, 5, 40, replays(first))
			s.record(first)
		},
		"a replay that returns before the execution does": func(s *story) {
			first := s.call(1, 0, 30, s.executes("x"))
			s.call(2, 16, 20, replays(first))
			s.record(first)
		},
		"a key that expires is executed again": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(2, 20, 30, replays(first))
			second := s.call(3, 200, 210, s.executes("y"))
			s.call(4, 220, 230, replays(second))
			s.record(second)
		},
		"a key whose record is purged, and that is executed again": func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			s.record(s.call(2, 300, 310, s.executes("y")))
		},
		"a record that is purged while the clock is ahead, and the key is executed again when it was set back": func(s *story) {
			s.options.ClockMoved = []Interval{{ms(40), ms(41)}, {ms(60), ms(61)}}
			s.purge(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Expires += us(1000) }))
			s.record(s.call(2, 900, 910, s.executes("y")))
		},
		"a record that is purged, and nobody asks again": func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
		},
		"a rejection of a call that never returned, of which a purge tells": func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			second := s.call(2, 200, 210, rejects("y"))
			s.purge(second)
			neverReturns(second)
		},
		"another request is refused while the record lives": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(2, 20, 30, mismatches(first))
			s.record(first)
		},
		"another request is executed when the record has expired": func(s *story) {
			s.call(1, 0, 10, s.executes("x"))
			second := s.call(2, 200, 210, payload("B"), s.executes("y"))
			s.record(second)
		},
		"a rejection and its replay": func(s *story) {
			first := s.call(1, 0, 10, rejects("x"))
			s.call(2, 20, 30, replays(first))
			s.record(first)
		},
		"a call that failed, and whoever took over": func(s *story) {
			s.call(1, 0, 10, answers(history.FnFailed), func(o *history.Operation) { o.Runs = []history.Run{{At: ms(5), ExecutionID: "x"}} })
			s.record(s.call(2, 1, 20, s.executes("y")))
		},
		"killed before COMMIT": func(s *story) {
			s.call(1, 0, 10, func(o *history.Operation) { o.Runs = []history.Run{{At: ms(5), ExecutionID: "x"}} }, neverReturns)
			s.record(s.call(2, 20, 30, s.executes("y")))
		},
		"killed after COMMIT, and nobody asked again": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			neverReturns(first)
		},
		"killed after COMMIT, and a retry replays": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first))
			neverReturns(first)
		},
		"killed after the COMMIT of a rejection that only a mismatch shows": func(s *story) {
			first := s.call(1, 0, 10, rejects("x"))
			s.call(2, 20, 30, mismatches(first))
			neverReturns(first)
			s.record(s.call(3, 200, 210, s.executes("y")))
		},
		"an unknown outcome that was a commit": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first))
			first.Return = history.Return{Outcome: history.Unknown, ExecutionID: "x"}
		},
		"in progress while somebody else is": func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 10, answers(history.InProgress))
			s.record(s.call(2, 5, 20, s.executes("x")))
		},
		"in progress for a call that follows one of its process, which has not got as far as asking": func(s *story) {
			first := s.call(1, 0, 10, lasting("x", s))
			s.record(first)
			s.call(2, 20, 200, process(7), replays(first))
			s.call(3, 30, 60, process(7), answers(history.InProgress))
		},
		"in progress after the answer has expired": func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x")))
			s.call(2, 300, 310, answers(history.InProgress))
		},
		"a long wait that is in vain while somebody else has the key": func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 4000, s.executes("x"))
			s.call(2, 10, 3010, waits(3000), answers(history.InProgress))
			s.record(s.operations[0])
		},
		"a long wait that is in vain after a call whose session may still be there": func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 20, answers(history.Cancelled))
			s.call(2, 10, 3010, waits(3000), answers(history.InProgress))
		},
		"a long wait that is in vain behind one of its process, which may wait for a connection": func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 3000, process(7), waits(3000), answers(history.InProgress))
			s.call(2, 10, 3010, process(7), waits(3000), answers(history.InProgress))
		},
		"a fn that ended its transaction, and was told so": func(s *story) {
			s.call(1, 0, 20, answers(history.Ended), func(o *history.Operation) { o.Fn = history.RestartSQL })
		},
		"in progress where nobody else had asked, but the connection of its first attempt was lost": func(s *story) {
			s.call(1, 0, 10, answers(history.InProgress))
		},
		"a DoTx that was committed, one that was not, one that failed in a transaction that went on": func(s *story) {
			s.call(1, 0, 10, verb("DoTx"), answers(history.Undone), func(o *history.Operation) { o.Runs = []history.Run{{At: ms(5), ExecutionID: "w"}} })
			failed := s.call(2, 10, 20, verb("DoTx"), answers(history.FnFailed), func(o *history.Operation) { o.Runs = []history.Run{{At: ms(15), ExecutionID: "v"}} })
			s.outer(failed, "before", "refused")
			first := s.call(3, 20, 30, verb("DoTx"), s.executes("x"))
			s.outer(first, "before", "executed")
			again := s.call(4, 40, 50, verb("DoTx"), replays(first))
			s.outer(again, "before", "replayed")
			s.record(first)
		},
		"a duplicate in memory shares an answer that expired before it came": func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			second := s.call(2, 200, 210, process(1), s.executes("y"))
			s.call(3, 90, 230, process(7), replays(first)) // it was found, and the process was stopped
			s.call(4, 220, 231, process(7), replays(first))
			s.record(second)
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

// There is one history for each way to break a promise.
func TestHistoriesThatBreakAPromiseAreRefused(t *testing.T) {
	t.Parallel()
	const order = rule.Order
	for name, test := range map[string]struct {
		want rule.Rule
		tell func(*story)
	}{
		"two executions in one retention period": {rule.Once, func(s *story) {
			s.call(1, 0, 10, s.executes("x"))
			s.record(s.call(2, 20, 30, s.executes("y")))
		}},
		"an acknowledged success without its effect": {rule.Success, func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x")))
			s.without("x")
		}},
		"an acknowledged success without its record": {rule.LastRecord, func(s *story) {
			s.call(1, 0, 10, s.executes("x"))
		}},
		"the record of the last execution is gone, and an earlier one was purged": {rule.LastRecord, func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			s.call(2, 300, 310, s.executes("y"))
		}},
		"a record that is purged before its time, and the key is executed again": {rule.Once, func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x")))
			s.record(s.call(2, 20, 30, s.executes("y")))
		}},
		"a record that is purged, of a key that is executed again before it expires": {rule.Once, func(s *story) {
			s.purge(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Expires += us(1000) }))
			s.record(s.call(2, 900, 910, s.executes("y")))
		}},
		"a record that no call made, and a purge deleted": {rule.RecordMade, func(s *story) {
			s.purge(s.call(1, 0, 10, rejects("x")))
			s.operations = nil
		}},
		"a rejection without its record": {rule.LastRecord, func(s *story) {
			s.call(1, 0, 10, rejects("x"))
		}},
		"an error of a call that has committed": {rule.Nothing, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			first.Return = history.Return{Outcome: history.FnFailed}
		}},
		"the end of the context, in a call that has committed": {rule.Nothing, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			first.Return = history.Return{Outcome: history.Cancelled}
		}},
		"an error of a call whose rejection was recorded": {rule.Nothing, func(s *story) {
			first := s.call(1, 0, 10, rejects("x"))
			s.record(first)
			first.Return = history.Return{Outcome: history.Failed}
		}},
		"the replay of another's response by a call that has executed": {rule.Nothing, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			second := s.call(2, 200, 210, s.executes("y"))
			s.record(second)
			first.End = ms(230)
			replays(second)(first)
		}},
		"ErrTxEnded of a call that has committed": {rule.Nothing, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			first.Return = history.Return{Outcome: history.Ended}
		}},
		"a response that is not the one committed": {rule.Bytes, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first)).Digest = "another"
		}},
		"a record whose response is not the one committed": {rule.Bytes, func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x"))).Digest = "another"
		}},
		"a response that is sealed and not opened": {rule.Readable, func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x")))
			s.call(2, 20, 30, answers(history.Unreadable))
		}},
		"a replay that says another time": {rule.Times, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first)).Expires++
		}},
		"a replay that says rejected": {rule.Rejection, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first)).Rejected = true
		}},
		"a replay to another request": {rule.Hash, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first), payload("B"))
		}},
		"a replay of what belongs to another key": {rule.OwnKey, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first), func(o *history.Operation) { o.Key = "other" })
		}},
		"a replay whose response names another call": {rule.OwnMaker, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first)).Maker++
		}},
		"a replay of what has no effect": {rule.Replayed, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first))
			neverReturns(first)
			s.without("x")
		}},
		"a replay after the expiry": {rule.Expired, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 200, 210, replays(first))
		}},
		"a rejection with an effect": {rule.Reject, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			first.Rejected = true
			s.record(first)
		}},
		"a call that executed and answers with another's": {rule.OwnAnswer, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, replays(first), func(o *history.Operation) { o.Outcome = history.Executed })
		}},
		"two effects of one operation": {rule.OneEffect, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.state.Effects = append(s.state.Effects, s.state.Effects[0])
			s.record(first)
		}},
		"an effect that no call made": {rule.EffectMade, func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x")))
			s.operations = nil
		}},
		"a record that no call made": {rule.RecordMade, func(s *story) {
			s.record(s.call(1, 0, 10, rejects("x")))
			s.operations = nil
		}},
		"a DoTx without its caller's writes": {rule.Joined, func(s *story) {
			s.record(s.call(1, 0, 10, verb("DoTx"), s.executes("x")))
		}},
		"the writes of a caller without the DoTx": {rule.Joined, func(s *story) {
			s.outer(s.call(1, 0, 10, verb("DoTx"), neverReturns), "before", "executed")
		}},
		"what a caller of DoTx rolled back": {rule.Undone, func(s *story) {
			s.outer(s.call(1, 0, 10, verb("DoTx"), answers(history.Undone)), "before", "refused")
		}},
		"a finding in the database": {"any rule of the ledger", func(s *story) {
			s.state.Findings = append(s.state.Findings, rule.Violation{Rule: "any rule of the ledger"})
		}},
		"a replay before the execution began": {order, func(s *story) {
			first := s.call(1, 20, 30, s.executes("x"))
			s.record(first)
			s.call(2, 0, 10, replays(first))
		}},
		"a replay of the one before, when the next has answered": {order, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			second := s.call(2, 200, 210, s.executes("y"))
			s.record(second)
			s.call(3, 220, 230, replays(first)).Wall = us(100) // its clock is wrong
		}},
		"a mismatch with nothing": {order, func(s *story) {
			first := s.call(1, 20, 30, s.executes("x"))
			s.record(first)
			s.call(2, 0, 10, mismatches(first))
		}},
		"a mismatch with the same request": {order, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, mismatches(first), payload("A"))
		}},
		"a mismatch that tells of another record": {order, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.record(first)
			s.call(2, 20, 30, mismatches(first)).Created++
		}},
		"in progress although the answer is known": {rule.Live, func(s *story) {
			first := s.call(1, 0, 10, lasting("x", s))
			s.record(first)
			s.call(2, 20, 30, answers(history.InProgress))
		}},
		"in progress in a DoTx although the answer is known, whatever its process does meanwhile": {rule.Live, func(s *story) {
			first := s.call(1, 0, 10, lasting("x", s))
			s.record(first)
			s.call(2, 20, 200, process(7), replays(first))
			s.call(3, 30, 60, process(7), verb("DoTx"), answers(history.InProgress))
		}},
		"a long wait that is in vain although the holder has failed": {rule.Holder, func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 20, answers(history.FnFailed))
			s.call(2, 10, 3010, waits(3000), answers(history.InProgress))
			s.call(3, 30, 3030, waits(3000), answers(history.InProgress))
		}},
		"a success of a fn that ended its transaction": {rule.Told, func(s *story) {
			s.record(s.call(1, 0, 10, s.executes("x"), func(o *history.Operation) { o.Fn = history.CommitSQL }))
		}},
		"in progress where nobody else had asked": {rule.Free, func(s *story) {
			s.options.Undisturbed = true
			s.call(1, 0, 10, answers(history.InProgress))
			s.record(s.call(2, 10, 20, s.executes("x")))
		}},
		"a rejection that is executed over": {rule.Once, func(s *story) {
			s.call(1, 0, 10, rejects("x"))
			s.record(s.call(2, 20, 30, s.executes("y")))
		}},
		"a call killed after COMMIT that is executed again": {rule.Once, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			neverReturns(first)
			s.record(s.call(2, 20, 30, s.executes("y")))
		}},
		"a duplicate of another process shares an answer that expired before it came": {rule.Expired, func(s *story) {
			first := s.call(1, 0, 10, s.executes("x"))
			s.call(3, 90, 230, process(7), replays(first))
			s.call(4, 220, 231, process(8), replays(first))
			s.record(first)
		}},
	} {
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

// A failover to a standby that lags behind loses key and effect together. Earlier commits stay.
func TestLossesAreAllowedOnlyWhereThereWasOne(t *testing.T) {
	t.Parallel()
	lost := func(s *story) {
		s.call(1, 1000, 1010, s.executes("x"))
		s.without("x")
		s.record(s.call(2, 1030, 1040, s.executes("y")))
	}
	for name, test := range map[string]struct {
		losses []Interval
		want   bool
	}{
		"no failover":         {nil, false},
		"in a failover":       {[]Interval{{ms(1005), ms(1020)}}, true},
		"long before":         {[]Interval{{ms(5000), ms(6000)}}, false},
		"after it was over":   {[]Interval{{ms(10), ms(20)}}, false},
		"by the second of it": {[]Interval{{ms(10), ms(20)}, {ms(1005), ms(1020)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{options: Options{Losses: test.losses}}
			lost(s)
			if broken := s.broken(t); (len(broken) == 0) != test.want {
				t.Errorf("broken: %q", broken)
			}
		})
	}
	t.Run("the record stays and the effect does not", func(t *testing.T) {
		t.Parallel()
		s := &story{options: Options{Losses: []Interval{{ms(1005), ms(1020)}}}}
		s.record(s.call(1, 1000, 1010, s.executes("x")))
		s.without("x")
		if broken := s.broken(t); !slices.Contains(broken, rule.Success) {
			t.Errorf("broken: %q", broken)
		}
	})
}

// An execution of a killed process may show only in the mismatches of other calls, and a failover
// may lose it afterwards.
func TestExecutionThatOnlyAMismatchShowsMayBeLostInAFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		losses []Interval
		want   bool
	}{
		"no failover":   {nil, false},
		"in a failover": {[]Interval{{ms(1060), ms(1080)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{options: Options{Losses: test.losses}}
			killed := s.call(1, 1000, 1010, s.executes("x"))
			s.call(2, 1030, 1040, mismatches(killed))
			s.without("x")
			neverReturns(killed)
			if broken := s.broken(t); (len(broken) == 0) != test.want {
				t.Errorf("broken: %q", broken)
			}
		})
	}
}

// If the clock of the database jumps during an execution, its times are not judged.
func TestTimesOfAnExecutionDuringWhichTheClockJumpedAreNotJudged(t *testing.T) {
	t.Parallel()
	for name, jumped := range map[string][]Interval{"no jump": nil, "a jump": {{ms(205), ms(206)}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{options: Options{ClockMoved: jumped}}
			s.call(1, 0, 10, s.executes("x"))
			second := s.call(2, 200, 210, s.executes("y"))
			s.state.Effects[1].Noted, second.Created, second.Completed, second.Expires = us(50), us(50), us(50), us(150)
			s.record(second)
			if broken := s.broken(t); (len(broken) == 0) != (jumped != nil) {
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
