package check

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkInProgress checks a call that returned ErrInProgress: another call can have held the key,
// and no answer to replay was known. k.operations is sorted by the beginning of the calls.
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

// known returns an execution whose answer a caller had before o began, and which is retained for at
// least a minute after o ended. It returns nil if there is none.
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

// longWait is a wait whose half is longer than a claim takes on any machine.
const longWait = 2 * time.Second

// heldTowardsEnd reports whether another call can have held the key in the second half of a long
// wait.
//
// A call that returned ErrInProgress did not hold the key. There is an exception: o may have waited
// in memory for a call of its own process, and that call may have waited for a connection all the
// time. For a call that ended with its context, or without an answer, the server may have noticed
// the end later than the caller.
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

// meanwhile returns the other calls that ran during o, and earlier ones that may have left a
// session behind that was still running.
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
