package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// applyRules checks all that does not depend on the order of the answers.
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

// checkExecuted: a call that was told that it executed has.
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

// checkReplayed: a replay is of an execution of the same key and the same request, that is still retained.
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
	// The worker's time of day is the database's: they are on one machine.
	if begun := k.leader(o).Wall; len(k.options.ClockMoved) == 0 && o.Expires < begun {
		k.violate(rule.Expired, fmt.Sprintf("it expired %d µs before the call began", begun-o.Expires), o, x.maker)
	}
}

// leader returns the call whose answer o may share: calls of one process wait for one another in memory, and what the
// first finds is given to those that come before it returns. It may be o itself.
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

// checkLeftNothing: a call that returned an error, or another's response, has committed nothing. ErrTxEnded promises that
// too where fn has not ended the transaction by a COMMIT of its own, and in a torture none does.
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

// checkEffects: an effect is of a call that was made, and there is one.
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

// checkPeriods: whoever executes finds no live record.
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

// purgedAhead reports whether the record may have been purged in a time to which the clock was set and from which it was set
// back. Nobody knows then that the key is taken by the clock as it is.
func (k *key) purgedAhead(x *execution) bool { return x.purged && len(k.options.ClockMoved) > 0 }

func (k *key) clockUncertain(executions ...*execution) bool {
	for _, x := range executions {
		if x.maker != nil && anyMeets(k.options.ClockMoved, x.maker) {
			return true
		}
	}
	return false
}

// checkRecord: the record is that of the last execution.
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

// checkOuter: what the caller of DoTx wrote is committed with the execution, or neither is.
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

// lag is how far a standby can be behind before anything is done to it.
const lag = 500 * time.Millisecond

// mayBeLost reports whether an execution may have vanished, together with its record, in a failover.
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

// lost counts the executions that somebody was told of and that are gone.
func (k *key) lost() int {
	n := 0
	for _, x := range k.executions {
		if len(x.seen) > 0 && !x.rejected && k.mayBeLost(x) {
			n++
		}
	}
	return n
}
