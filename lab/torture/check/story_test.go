package check

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// story is a history written by hand: the answers of calls and the state of the database. Its clock
// and the clock of the database count milliseconds.
type story struct {
	operations []*history.Operation
	state      ledger.State
	options    Options
}

const (
	testScope = "scope"
	testKey   = "key"
	ttl       = 100 // milliseconds
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func us(n int) int64 { return int64(n) * 1000 }

// call adds a call with an answer.
func (s *story) call(n uint32, from, to int, change ...func(*history.Operation)) *history.Operation {
	o := &history.Operation{
		Op: history.NewOp(int(n), 0, n), Begin: ms(from), End: ms(to),
		Call: history.Call{
			Verb: "Do", Scope: testScope, Key: testKey, Payload: "A", Fn: "ok", TTL: ms(ttl), Wall: us(from),
		},
	}
	for _, c := range change {
		c(o)
	}
	s.operations = append(s.operations, o)
	return o
}

// executes makes the call an execution whose effect was written in the middle of the call. The
// effect is in the database.
func (s *story) executes(id string) func(*history.Operation) {
	return func(o *history.Operation) {
		at := int(o.Begin+o.End) / 2 / int(time.Millisecond)
		o.Runs = append(o.Runs, history.Run{At: ms(at), ExecutionID: id})
		o.Return = history.Return{
			Outcome: history.Executed, ExecutionID: id, Digest: "digest of " + id, Maker: o.Op,
			Created: us(at) - 1, Completed: us(at) + 1, Expires: us(at+ttl) + 1,
		}
		s.state.Effects = append(s.state.Effects, &ledger.Effect{
			ExecutionID: id, Op: o.Op, Scope: o.Scope, Key: o.Key, Payload: o.Payload, Digest: o.Digest,
			TTL: us(ttl), Noted: us(at),
		})
	}
}

// executed adds a call that executes, with its record.
func (s *story) executed() *history.Operation {
	o := s.call(1, 0, 10, s.executes("x"))
	s.record(o)
	return o
}

// record adds the record of an execution as the final record of the key.
func (s *story) record(of *history.Operation) *ledger.Record {
	r := recordOf(of)
	s.state.Records = append(s.state.Records, r)
	return r
}

// purge adds the record of an execution as a purged record.
func (s *story) purge(of *history.Operation) { s.state.Purged = append(s.state.Purged, recordOf(of)) }

func recordOf(o *history.Operation) *ledger.Record {
	state := map[bool]string{false: "completed", true: "failed"}[o.Rejected]
	return &ledger.Record{
		ExecutionID: o.ExecutionID, Scope: o.Scope, Key: o.Key, State: state, Digest: o.Digest,
		Created: o.Created, Completed: o.Completed, Expires: o.Expires,
	}
}

// rejects makes the call an execution that rejected and has no effect.
func rejects(id string) func(*history.Operation) {
	return func(o *history.Operation) {
		new(story).executes(id)(o)
		o.Fn, o.Rejected = "reject", true
	}
}

// replays makes the call a replay of the execution of another call.
func replays(of *history.Operation) func(*history.Operation) {
	return func(o *history.Operation) {
		o.Return = of.Return
		o.Outcome = history.Replayed
	}
}

func answers(outcome history.Outcome) func(*history.Operation) {
	return func(o *history.Operation) { o.Return = history.Return{Outcome: outcome} }
}

func mismatches(with *history.Operation) func(*history.Operation) {
	return func(o *history.Operation) {
		o.Payload, o.Return = "B", history.Return{Outcome: history.Mismatch, Created: with.Created}
	}
}

// neverReturns makes the call one of a killed process. Its effects stay.
func neverReturns(o *history.Operation) {
	o.End, o.Return = history.Forever, history.Return{Outcome: history.Open}
}

func verb(name string) func(*history.Operation) {
	return func(o *history.Operation) { o.Verb = name }
}

func payload(name string) func(*history.Operation) {
	return func(o *history.Operation) { o.Payload = name }
}

func process(slot int) func(*history.Operation) {
	return func(o *history.Operation) { o.Op = history.NewOp(slot, 0, uint32(o.Op)) }
}

// outer adds what the caller of DoTx wrote.
func (s *story) outer(o *history.Operation, parts ...string) {
	for _, part := range parts {
		s.state.Outers = append(s.state.Outers, &ledger.Outer{Op: o.Op, Scope: o.Scope, Key: o.Key, Part: part})
	}
}

// lasting returns an execution whose record is retained for an hour.
func lasting(id string, s *story) func(*history.Operation) {
	return func(o *history.Operation) {
		s.executes(id)(o)
		hour := time.Hour.Microseconds()
		o.TTL, o.Expires = time.Hour, o.Expires+hour
		s.state.Effects[len(s.state.Effects)-1].TTL += hour
	}
}

func waits(milliseconds int) func(*history.Operation) {
	return func(o *history.Operation) { o.Wait = ms(milliseconds) }
}

// without removes the effect of an execution from the database.
func (s *story) without(id string) {
	s.state.Effects = slices.DeleteFunc(s.state.Effects, func(e *ledger.Effect) bool { return e.ExecutionID == id })
}

// broken returns the rules that the story breaks.
func (s *story) broken(t *testing.T) []rule.Rule {
	t.Helper()
	result := judge(s.operations, &s.state, &s.options)
	for _, u := range result.Unchecked {
		t.Errorf("unchecked: %s", u)
	}
	var rules []rule.Rule
	for _, v := range result.Violations {
		rules = append(rules, v.Rule)
		t.Logf("%v", v)
	}
	return rules
}
