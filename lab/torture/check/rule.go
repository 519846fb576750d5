package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// applyRules checks everything that does not depend on the order of the answers.
func (k *key) applyRules() {
	k.checkTold()
	for _, o := range k.operations {
		switch {
		case o.Outcome == history.Executed:
			k.checkExecuted(o)
		case o.Outcome == history.Replayed:
			k.checkReplayed(o)
		case o.Outcome == history.InProgress:
			k.checkInProgress(o)
		case o.Outcome == history.Unreadable:
			k.violate(rule.Readable, o.Err, o)
		}
		k.checkLeftNothing(o)
		k.checkOuter(o)
	}
	for _, x := range k.executions {
		k.checkEffects(x)
	}
	k.checkPeriods()
	k.checkRecord()
}

// checkExecuted checks a call that returned the result of its own execution. The call itself must
// have run that execution, and the effect must exist unless fn rejected.
func (k *key) checkExecuted(o *history.Operation) {
	x := k.byID[o.ExecutionID]
	if x.maker != o || o.Maker != o.Op {
		k.violate(rule.OwnAnswer, "operation "+x.id, o, x.maker)
	}
	switch {
	case o.Rejected && len(x.effects) > 0:
		k.violate(rule.Reject, "operation "+x.id+" has an effect", o)
	case !o.Rejected && len(x.effects) == 0 && !k.mayBeLost(x):
		k.violate(rule.Success, "operation "+x.id+" has none", o)
	}
}

// checkReplayed checks that a replayed response belongs to the same key and payload, and that its
// record had not expired when the call began.
func (k *key) checkReplayed(o *history.Operation) {
	x := k.byID[o.ExecutionID]
	switch {
	case x.maker == nil:
		k.violate(rule.OwnKey, "operation "+x.id+" is of none", o)
		return
	case o.Maker != x.maker.Op:
		k.violate(rule.OwnMaker, fmt.Sprintf("operation %s was made by %v", x.id, x.maker.Op), o, x.maker)
	case x.payload != o.Payload:
		k.violate(rule.Hash, fmt.Sprintf("operation %s is of payload %s", x.id, x.payload), o, x.maker)
	case !o.Rejected && len(x.effects) == 0 && !k.mayBeLost(x):
		k.violate(rule.Replayed, "operation "+x.id+" has none", o, x.maker)
	}
	// The worker runs on the machine of the database, so both have the same time of day.
	if begun := k.leader(o).Wall; len(k.options.ClockMoved) == 0 && o.Expires < begun {
		k.violate(rule.Expired, fmt.Sprintf("it expired %d µs before the call began", begun-o.Expires), o, x.maker)
	}
}

// leader returns the earliest call whose answer o may share, or o itself if there is none. Calls of
// one process wait for one another in memory. All calls that arrive before the first one returns
// get its answer.
func (k *key) leader(o *history.Operation) *history.Operation {
	earliest := o
	if o.Verb == history.DoTx {
		return o
	}
	for _, other := range k.operations {
		if other.Begin >= o.Begin {
			break
		}
		if other.End > o.Begin && other.Verb != history.DoTx && other.Op.Process() == o.Op.Process() && other.Begin < earliest.Begin {
			earliest = other
		}
	}
	return earliest
}

// checkLeftNothing checks that a call which returned an error, or the response of another
// execution, committed nothing. ErrTxEnded promises this too, unless fn itself committed. Only a fn
// of CommitScope commits here, and that scope is checked separately.
func (k *key) checkLeftNothing(o *history.Operation) {
	if !o.Outcome.CommittedNothing() && o.Outcome != history.Ended && o.Outcome != history.Replayed {
		return
	}
	for _, run := range o.Runs {
		if x := k.byID[run.ExecutionID]; x != nil && x.certain {
			k.violate(rule.Nothing,
				fmt.Sprintf("operation %s of %v has %d effects, record %v", x.id, o.Op, len(x.effects), x.record != nil),
				append(slices.Clone(x.seen), o)...)
			return
		}
	}
}

// checkEffects checks that each effect and each record belongs to a call for this key, and that an
// execution has at most one effect.
func (k *key) checkEffects(x *execution) {
	for _, e := range x.effects {
		if x.maker == nil || x.maker.Op != e.Op || x.maker.Payload != e.Payload {
			k.violate(rule.EffectMade, fmt.Sprintf("operation %s of %v", x.id, e.Op), x.maker)
		}
	}
	if len(x.effects) > 1 {
		k.violate(rule.OneEffect, fmt.Sprintf("operation %s has %d", x.id, len(x.effects)), x.maker)
	}
	if (x.record != nil || x.purged) && x.maker == nil {
		k.violate(rule.RecordMade, "operation "+x.id, nil)
	}
}

// checkPeriods checks that no execution began while the record of an earlier one was retained.
func (k *key) checkPeriods() {
	var last *execution
	for _, x := range k.executions {
		if !x.ofKey() || x.latest() == 0 || k.mayBeLost(x) {
			continue
		}
		if last != nil && last.overlaps(x) && !k.clockUncertain(last, x) && !k.purgedAhead(last) {
			k.violate(rule.Once,
				fmt.Sprintf("operation %s was retained for %d µs more when %s held the key", last.id, last.retainedUntil()-x.latest(), x.id),
				last.maker, x.maker)
		}
		last = x
	}
}

// purgedAhead reports whether the record may have been purged while the clock was ahead. After the
// clock is set back, the times of the record say that it is retained, but it is gone.
func (k *key) purgedAhead(x *execution) bool { return x.purged && len(k.options.ClockMoved) > 0 }

// clockUncertain reports whether the clock was wrong during any of the executions.
func (k *key) clockUncertain(executions ...*execution) bool {
	for _, x := range executions {
		if x.maker != nil && slices.ContainsFunc(k.options.ClockMoved, func(i Interval) bool { return i.meets(x.maker) }) {
			return true
		}
	}
	return false
}

// checkRecord checks that the key has the record of its last execution, unless that record was
// purged.
func (k *key) checkRecord() {
	var last *execution
	for _, x := range k.executions {
		if x.ofKey() && x.latest() != 0 && !k.mayBeLost(x) {
			last = x
		}
	}
	if last == nil || k.record == nil && last.purged || k.record != nil && k.record.ExecutionID == last.id || k.clockUncertain(k.executions...) {
		return
	}
	detail := fmt.Sprintf("the key has no record, its last execution is %s", last.id)
	if k.record != nil {
		detail = fmt.Sprintf("the record is of %s, the last execution is %s", k.record.ExecutionID, last.id)
	}
	k.violate(rule.LastRecord, detail, last.maker)
}

// checkOuter checks that what the caller of DoTx wrote is committed if and only if the effect is.
func (k *key) checkOuter(o *history.Operation) {
	if o.Verb != history.DoTx {
		return
	}
	parts := k.outers[o.Op]
	joined := slices.Contains(parts, string(history.Executed))
	effect := slices.ContainsFunc(o.Runs, func(run history.Run) bool {
		x := k.byID[run.ExecutionID]
		return x != nil && len(x.effects) > 0
	})
	switch {
	case joined != effect:
		k.violate(rule.Joined, fmt.Sprintf("the caller's: %v, the effect: %v", parts, effect), o)
	case o.Outcome == history.Undone && len(parts) > 0:
		k.violate(rule.Undone, fmt.Sprint(parts), o)
	}
}

// lag is how far a standby may lag behind the primary even before a fault begins.
const lag = 500 * time.Millisecond

// mayBeLost reports whether a failover may have lost the execution together with its record.
func (k *key) mayBeLost(x *execution) bool {
	if x.maker == nil || len(x.effects) > 0 || x.record != nil || x.purged {
		return false
	}
	for _, loss := range k.options.Losses {
		if x.maker.Begin <= loss.To && x.maker.End >= loss.From-lag {
			return true
		}
	}
	return false
}

// checkInProgress checks a call that returned ErrInProgress. Another call must have been able to
// hold the key, and no answer to replay may have been known. k.operations is sorted by the
// beginning of the calls.
func (k *key) checkInProgress(o *history.Operation) {
	alone := k.operations[0] == o && (len(k.operations) == 1 || k.operations[1].Begin >= o.End)
	switch {
	case alone && k.options.Undisturbed:
		k.violate(rule.Free, "", o)
	case !k.follows(o) && k.known(o) != nil:
		x := k.known(o)
		k.violate(rule.Live, "operation "+x.id, append(x.seen[:1:1], o)...)
	case k.options.Undisturbed && !k.heldTowardsEnd(o):
		k.violate(rule.Holder, "", append(k.meanwhile(o), o)...)
	}
}

// follows reports whether the call may have waited in memory for another call of its process,
// without asking the database.
func (k *key) follows(o *history.Operation) bool {
	if o.Verb == history.DoTx {
		return false
	}
	for _, other := range k.meanwhile(o) {
		if other.Verb != history.DoTx && other.Op.Process() == o.Op.Process() {
			return true
		}
	}
	return false
}

// known returns an execution whose answer a caller had before o began, and whose record is retained
// for at least a minute after o ended. It returns nil if there is none.
func (k *key) known(o *history.Operation) *execution {
	if len(k.options.ClockMoved) > 0 || len(k.options.Losses) > 0 {
		return nil
	}
	ended := time.Duration(o.Wall)*time.Microsecond + o.End - o.Begin
	for _, x := range k.executions {
		if time.Duration(x.expires)*time.Microsecond < ended+time.Minute {
			continue
		}
		for _, told := range x.seen {
			if told.End < o.Begin {
				return x
			}
		}
	}
	return nil
}

// longWait is a wait so long that a claim takes less than half of it on any machine.
const longWait = 2 * time.Second

// heldTowardsEnd reports whether another call can have held the key in the second half of a long
// wait.
//
// A call of another process that returned ErrInProgress did not hold the key. A call of the same
// process counts even then: while that call waited for a connection, o may have waited in memory.
// For a call that ended with its context or without an answer, the server may have noticed the end
// later than the caller, so that call counts too.
func (k *key) heldTowardsEnd(o *history.Operation) bool {
	if o.Verb == history.DoTx || o.Wait < longWait {
		return true
	}
	for _, other := range k.meanwhile(o) {
		refused := other.Outcome == history.InProgress && len(other.Runs) == 0 && other.Op.Process() != o.Op.Process()
		if !refused && (other.End > o.End-o.Wait/2 || !other.Outcome.Orderly()) {
			return true
		}
	}
	return false
}

// meanwhile returns the other calls that ran during o, and earlier calls whose sessions may have
// outlived them.
func (k *key) meanwhile(o *history.Operation) []*history.Operation {
	var others []*history.Operation
	for _, other := range k.operations {
		if other != o && other.Begin < o.End && (other.End > o.Begin || !other.Outcome.Orderly()) {
			others = append(others, other)
		}
	}
	return others
}

// checkTold checks that a call whose fn ended the transaction did not return success.
func (k *key) checkTold() {
	for _, o := range k.operations {
		if history.EndsTransaction(o.Fn) && o.Outcome == history.Executed {
			k.violate(rule.Told, "its fn does: "+o.Fn, o)
		}
	}
}
