package check

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/model"
	"github.com/idem-go/idem/lab/torture/rule"
)

// This file checks the history of a key against the specification model.Keys. The history is
// accepted if some behavior of the specification gives the callers the same answers.
//
// accept takes the events of the history in the order of their times. The server may have committed
// or rolled back between two events, so accept tracks the set of all possible states. Only steps of
// the specification change a state, with one exception: a failover to a standby that lags behind
// brings back an earlier row.
//
// A run of fn is a claim of the key. A call with the outcome Executed committed before it returned.
// A call that returned a replay or a mismatch read the record at some time while it was in
// progress. A call that returned ErrInProgress found no record to replay at some time. Any other
// error may come at any time, from an execution that is not committed.

// spec is the specification of the protocol, for one key.
var spec = model.Keys{Keys: 1, Crashes: math.MaxUint8}

// possible is a state that the key can be in. Of the calls in progress it contains only the one
// that has claimed the key, because the others have no transaction.
type possible struct {
	model.State
	// justified has a bit for each call that has begun and not returned, at its index in
	// follower.numbers. The bit is set if the outcome that the call will return is already explained.
	justified [4]uint64
	losses    uint64 // a bit set of the failovers that have lost commits, by their index
}

// Slots of a state: the call that has claimed the key, and a call that only reads.
const (
	holder = iota
	reader
)

// follower tracks the possible states of a key through its history.
type follower struct {
	*key
	states  map[possible]int           // the possible states, with the number of steps to each
	numbers map[*history.Operation]int // numbers of the calls in progress, which are their bits in possible.justified
	ran     map[*execution]bool        // the executions whose call is in progress; a COMMIT may still record them
	losing  map[int]bool               // the failovers in progress
	hashes  map[string]uint8
}

// event is an event of a call, or of a failover.
type event struct {
	at   time.Duration
	kind eventKind
	call *history.Operation
	run  string
	loss int
}

type eventKind int

const (
	begins eventKind = iota
	runs
	returns
)

// events returns the history in the order of time. A call that got a replay or a mismatch may share
// the answer of an earlier call of its process, its leader. So events lets it begin when its leader
// began. A call that never returned, or returned without knowing its outcome, may commit at any
// later time.
func (k *key) events() (events []event) {
	for _, o := range k.operations {
		from, to := o.Begin, o.End
		if o.Outcome == history.Replayed || o.Outcome == history.Mismatch {
			from = k.leader(o).Begin
		}
		if o.Outcome == history.Unknown {
			to = history.Forever
		}
		events = append(events, event{at: from, kind: begins, call: o}, event{at: to, kind: returns, call: o})
		for _, r := range o.Runs {
			events = append(events, event{at: r.At, kind: runs, call: o, run: r.ExecutionID})
		}
	}
	for i, loss := range k.options.Losses {
		events = append(events, event{at: loss.From - lag, kind: begins, loss: i}, event{at: loss.To, kind: returns, loss: i})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })
	return events
}

// accept returns the number of steps of the specification that explain the history. It adds a
// violation if no steps explain it. complete is false if the history is too large.
func (k *key) accept() (steps int, complete bool) {
	f := &follower{
		key: k, states: map[possible]int{{}: 0}, numbers: make(map[*history.Operation]int),
		ran: make(map[*execution]bool), losing: make(map[int]bool), hashes: make(map[string]uint8),
	}
	if len(k.executions) >= math.MaxUint16 || len(k.options.Losses) > 64 {
		return 0, false
	}
	for _, e := range k.events() {
		if !f.prepare(e) {
			return 0, false
		}
		next := make(map[possible]int)
		for s, steps := range f.states {
			f.follow(s, steps, e, next)
		}
		f.states = next
		if len(f.states) == 0 {
			k.violate(rule.Order, "the model has no step for the last of these", append(slices.Collect(maps.Keys(f.numbers)), e.call)...)
			return 0, true
		}
		f.finish(e)
	}
	return slices.Min(slices.Collect(maps.Values(f.states))), true
}

// prepare numbers a call that begins. It returns false if too many are in progress.
func (f *follower) prepare(e event) bool {
	switch {
	case e.call == nil:
		f.losing[e.loss] = e.kind == begins
	case e.kind == begins:
		used := slices.Sorted(maps.Values(f.numbers))
		n := 0
		for n < len(used) && used[n] == n {
			n++
		}
		f.numbers[e.call] = n
		return n < 256 && len(f.states) < 1<<12
	case e.kind == runs && f.byID[e.run] != nil:
		f.ran[f.byID[e.run]] = true
	}
	return true
}

func (f *follower) finish(e event) {
	if e.call != nil && e.kind == returns {
		delete(f.numbers, e.call)
		for _, r := range e.call.Runs {
			delete(f.ran, f.byID[r.ExecutionID])
		}
	}
}

// follow adds the states that are possible after the event, if s was possible before.
func (f *follower) follow(s possible, steps int, e event, next map[possible]int) {
	switch {
	case e.call == nil, e.kind == begins:
	case e.kind == runs:
		s.justify(f.numbers[e.call], false)
		if !f.claimBy(&s, &steps, e) {
			return
		}
	case f.needs(e.call) && !s.isJustified(f.numbers[e.call]), e.call.Outcome.CommittedNothing() && f.isCommitted(e.call):
		return
	default:
		s.justify(f.numbers[e.call], false)
	}
	f.add(s, steps, next)
}

// needs reports whether a state is possible only if it explains the outcome of the call.
func (f *follower) needs(o *history.Operation) bool {
	switch o.Outcome {
	case history.Executed, history.Replayed, history.Mismatch:
		return true
	case history.InProgress:
		// Any state is possible if the call may have waited in memory and not asked the database,
		// or if commits were lost or the clock of the database was moved.
		return !f.follows(o) && len(f.options.Losses)+len(f.options.ClockMoved) == 0
	}
	return !o.Outcome.CommittedNothing() && f.isCommitted(o)
}

// isCommitted reports whether an execution of the call is known to be committed.
func (f *follower) isCommitted(o *history.Operation) bool {
	return slices.ContainsFunc(o.Runs, func(r history.Run) bool {
		x := f.byID[r.ExecutionID]
		return x != nil && x.certain
	})
}

// add adds a state, with the states to which the server can go from there before the next event.
func (f *follower) add(s possible, steps int, next map[possible]int) {
	f.read(&s, &steps)
	if known, ok := next[s]; ok && known <= steps {
		return
	}
	next[s] = steps
	for i, now := range f.losing {
		if now && s.losses>>i&1 == 0 {
			f.lose(s, steps, i, next)
		}
	}
	if by := s.Calls[holder].ID; by != 0 {
		x, t, n := f.executions[by-1], s, steps
		if !history.EndsTransaction(x.maker.Fn) && !x.rejected && f.walk(&t, &n, holder, "FnReturns", "Commit") {
			f.record(t, n, x, next)
		}
		if t, n := s, steps; f.walk(&t, &n, holder, "Deadlock") {
			t.Calls[holder] = model.Call{}
			f.add(t, n, next)
		}
		return
	}
	for x := range f.ran {
		t, n := s, steps
		waits := x.rejected && !s.isJustified(f.numbers[x.maker])
		if waits && f.claim(&t, &n, f.callOf(x, true), f.mayExpireBefore(x)) && f.walk(&t, &n, holder, "Commit") {
			f.record(t, n, x, next)
		}
	}
}

// record adds the state after the COMMIT of an execution, unless the final database contradicts
// that COMMIT.
func (f *follower) record(s possible, steps int, x *execution, next map[possible]int) {
	if x.rejected != (len(x.effects) == 0) && !f.mayBeLost(x) {
		return
	}
	s.Calls[holder] = model.Call{}
	if n, numbered := f.numbers[x.maker]; numbered {
		s.justify(n, true)
	}
	f.add(s, steps, next)
}

// lose adds the states after a failover: the key has no record, or an earlier one.
func (f *follower) lose(s possible, steps, loss int, next map[possible]int) {
	s.losses |= 1 << loss
	s.State = model.State{}
	f.add(s, steps, next)
	for _, x := range f.executions {
		if len(x.effects) > 0 || x.record != nil || x.purged || x.rejected {
			s.State = model.State{}
			s.Keys[0].Row = model.Row{Stored: true, Hash: f.hash(x.payload), By: f.callOf(x, false).ID}
			s.Keys[0].Live = 1
			f.add(s, steps, next)
		}
	}
}

// read marks the outcomes of calls in progress as explained if the calls can read them in this
// state.
func (f *follower) read(s *possible, steps *int) {
	row := s.Keys[0].Row
	live := row.Stored && (!row.Expired || len(f.options.ClockMoved) > 0) // the clock may be set back
	for o, n := range f.numbers {
		if s.isJustified(n) {
			continue
		}
		if o.Outcome == history.InProgress {
			ends := o.Wall + (o.End - o.Begin + time.Minute).Microseconds()
			s.justify(n, !live || f.executions[row.By-1].retainedUntil() < ends)
		}
		if !live || o.Outcome != history.Replayed && o.Outcome != history.Mismatch {
			continue
		}
		x := f.executions[row.By-1]
		action := model.Action("Replay")
		if o.Outcome == history.Mismatch {
			action = "Mismatch"
		}
		same := o.ExecutionID == x.id || action == "Mismatch" && (x.created == 0 || x.created == o.Created)
		late := len(f.options.ClockMoved) == 0 && x.expires != 0 && x.expires < f.leader(o).Wall
		t, n2 := *s, *steps
		t.Keys[0].Row.Expired, t.Keys[0].Row.Hash = false, f.hash(x.payload)
		t.Calls[reader] = model.Call{ID: math.MaxUint16, Hash: f.hash(o.Payload), Phase: model.Claiming}
		if same && !late && f.walk(&t, &n2, reader, "Conflict", action) {
			s.justify(n, true)
			*steps = n2
		}
	}
}

// claimBy claims the key for a run of fn. The claim of a run that is not committed is not judged if
// the clock of the database moved or commits were lost.
func (f *follower) claimBy(s *possible, steps *int, e event) bool {
	if e.run != e.call.Runs[0].ExecutionID { // a call has one execution id
		return false
	}
	if x := f.byID[e.run]; x != nil {
		return f.claim(s, steps, f.callOf(x, false), f.mayExpireBefore(x))
	}
	if s.Calls[holder].ID != 0 || len(f.options.Losses)+len(f.options.ClockMoved) > 0 {
		return s.Calls[holder].ID == 0
	}
	ran := e.call.Wall + (e.at - e.call.Begin).Microseconds()
	call := model.Call{ID: math.MaxUint16, Hash: f.hash(e.call.Payload), Phase: model.Claiming}
	claimed := f.claim(s, steps, call, func(y *execution) bool { return y.retainedUntil() <= ran }) && f.walk(s, steps, holder, "Deadlock")
	s.Calls[holder] = model.Call{}
	return claimed
}

// claim claims the key for a call. expires reports whether a record may have expired before the
// claim.
func (f *follower) claim(s *possible, steps *int, call model.Call, expires func(*execution) bool) bool {
	row := s.Keys[0].Row
	if s.Calls[holder].ID != 0 || row.Stored && !row.Expired && !expires(f.executions[row.By-1]) {
		return false
	}
	s.Calls[holder] = call
	if !row.Stored {
		return f.walk(s, steps, holder, "Claim")
	}
	return (row.Expired || f.walk(s, steps, ^0, "Expire")) && f.walk(s, steps, holder, "Conflict", "Expired", "TakeOver")
}

// mayExpireBefore returns a function that reports whether a record may have expired before x held
// the key.
func (f *follower) mayExpireBefore(x *execution) func(*execution) bool {
	return func(y *execution) bool { return !y.overlaps(x) || f.clockUncertain(y, x) || f.purgedAhead(y) }
}

// walk takes steps of the specification. It returns false if one of them is not enabled.
func (f *follower) walk(s *possible, steps *int, actor int, actions ...model.Action) bool {
	for _, action := range actions {
		enabled := false
		spec.Next(s.State, func(step model.Step, to model.State) {
			if step == (model.Step{Action: action, Actor: actor}) && !enabled {
				enabled, s.State = true, to
			}
		})
		if !enabled {
			return false
		}
		*steps++
	}
	return true
}

func (f *follower) callOf(x *execution, rejects bool) model.Call {
	return model.Call{ID: uint16(x.index) + 1, Hash: f.hash(x.payload), Phase: model.Claiming, Reject: rejects}
}

// hash returns a number for a payload.
func (f *follower) hash(payload string) uint8 {
	if _, known := f.hashes[payload]; !known {
		f.hashes[payload] = uint8(len(f.hashes))
	}
	return f.hashes[payload]
}

func (s *possible) isJustified(n int) bool { return s.justified[n/64]>>(n%64)&1 == 1 }

func (s *possible) justify(n int, is bool) {
	s.justified[n/64] &^= 1 << (n % 64)
	if is {
		s.justified[n/64] |= 1 << (n % 64)
	}
}
