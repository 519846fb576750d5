// Package rule names the rules that every run must satisfy. Checkers report violations of a rule,
// and mutants name the rules that they break.
package rule

import (
	"fmt"
	"strings"
)

// Rule is the sentence that states a rule. It is true of every run in which all promises were kept.
type Rule string

// Violation is a promise that was not kept.
type Violation struct {
	Rule       Rule
	Scope, Key string // empty if the violation is not about one key
	Detail     string
	History    []string // the events that led to it
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NOT KEPT: %s\n", v.Rule)
	if v.Key != "" {
		fmt.Fprintf(&b, "  scope %s, key %s\n", v.Scope, v.Key)
	}
	if v.Detail != "" {
		fmt.Fprintf(&b, "  %s\n", v.Detail)
	}
	for _, line := range v.History {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

// Result is the result of the check of a run.
type Result struct {
	Violations []Violation
	Unchecked  []string // keys whose history is too large for the model
	Calls      int
	Keys       int
	Histories  int // number of histories, of keys or operations, that the model accepts
	Steps      int // number of steps of the model that explain the accepted histories
}

// Rules that package check verifies with the history of a key.
const (
	Once       Rule = "a key is executed once in its retention period"
	Order      Rule = "every history is a behavior of the model"
	Nothing    Rule = "a call that returns an error has committed nothing"
	Free       Rule = "a key that no other call uses is not in progress" // checked only without faults
	Live       Rule = "a key whose answer is known and retained is not in progress"
	Holder     Rule = "a call waits in vain only while another has the key" // checked only without faults
	Told       Rule = "a fn that ends its transaction gets an error"
	Success    Rule = "an acknowledged success has its effect"
	OwnAnswer  Rule = "a call that executed answers with its own execution"
	Reject     Rule = "Reject undoes what fn wrote"
	OwnKey     Rule = "a replay is of an execution of its own key"
	OwnMaker   Rule = "a replay gives the response of its execution"
	Hash       Rule = "a request with another hash is refused"
	Replayed   Rule = "a response that is replayed has its effect"
	Expired    Rule = "an expired record is not replayed"
	Bytes      Rule = "an answer is, byte for byte, the response that was committed"
	Readable   Rule = "a caller with the key can read a recorded response"
	Times      Rule = "all answers from one execution tell the same times"
	Rejection  Rule = "all answers from one execution agree on whether it was rejected"
	EffectMade Rule = "an effect is of a call for its key"
	RecordMade Rule = "a record is of a call for its key"
	LastRecord Rule = "the record is that of the last execution"
	Joined     Rule = "the effect of DoTx is committed with its caller's writes"
	Undone     Rule = "a rollback by the caller of DoTx undoes all"
)

// Rules that package ledger verifies in the database at the end of a run.
const (
	Processing    Rule = "no record in state processing is visible at rest"
	OneRecord     Rule = "a key has one record"
	Completed     Rule = "a completed record has exactly one effect"
	Rejected      Rule = "a rejected record has no effect"
	SameRequest   Rule = "record and effect are of the same key and request"
	Record        Rule = "an effect has its record, or a successor after its retention" // not checked if the clock jumped
	OneEffect     Rule = "an operation has one effect"
	Retained      Rule = "a record that is retained is not purged"      // not checked if the clock jumped
	Grace         Rule = "an expired record is not purged in its grace" // not checked if the clock jumped
	WholeEffect   Rule = "an effect is there as a whole"
	Balances      Rule = "balances are the sums of the entries"
	WholeCaller   Rule = "the writes of the caller of DoTx are committed as a whole"
	NoConnection  Rule = "no connection is left over"
	NoLock        Rule = "no lock is left over"
	NoTransaction Rule = "no prepared transaction is left over"

	PurgedProcessing Rule = "a record in state processing is not purged"
)

// Rules that are verified in other ways.
const (
	NoGoroutine Rule = "no goroutine is left over"
	Tenant      Rule = "an answered write of a tenant is stored once, at the home of the tenant"
	Recovers    Rule = "the server recovers with every acknowledged commit" // if not, there is no state to check
)

// Rules about operations that package audit verifies.
const (
	CallOnce    Rule = "a call has its effect at most once"
	CallMade    Rule = "an operation that has ended has made its calls"
	Durable     Rule = "a call is made only for a recorded operation"
	StepOnce    Rule = "a step in Postgres is committed once"
	StepWhole   Rule = "the writes of a step and its record are committed together"
	UndoneOnce  Rule = "an undo runs once if its step is done and the operation is undone, and otherwise never"
	UndoneOrder Rule = "undos run in the reverse order of their steps"
	UndoneLast  Rule = "no step runs after an undo"
	UndoneValue Rule = "an undo gets the value of its step"
	Ends        Rule = "an operation ends, or is parked"
	Reason      Rule = "the reason of a parked operation is true"
	Acknowledge Rule = "an operation ends with the outcome that its callers got"
	SameAnswer  Rule = "all callers of an operation get the same answer"
	OneOutcome  Rule = "a key has one outcome"
	Signalled   Rule = "a signal that came in time is received"
	OneWorker   Rule = "one process at a time works on an operation" // checked only in the calm period at the end
	Epoch       Rule = "every commit of an operation is a step of the model"
)

// Further rules about operations. A run tests most of them only if the code of an operation
// changes, its function fails, or the bank declines a call.
const (
	InDoubt   Rule = "a call that was begun is recorded, and no step is put before it"
	OneKey    Rule = "a charge is made under one key"
	Stands    Rule = "the answer lists the charges that were not undone"
	Kept      Rule = "an outcome that a run got is recorded, however the run ends"
	SameError Rule = "a replayed error of a step is equal to the first"
	SameValue Rule = "a replayed value of a step is equal to the first"
	Unsent    Rule = "an attempt that was not sent settles no earlier attempt"
	Canceled  Rule = "no call is begun once its operation is canceled"
	Waits     Rule = "a cancel waits for the answer of a call in progress"
	Anew      Rule = "a call that waits for an operation that is canceled begins no other one"
	Awaited   Rule = "a call that waited for an operation gets the outcome of that operation"
	Innocent  Rule = "an operation is parked for too many deaths only if it causes them"
	Woken     Rule = "a claimed operation is worked on, or claimed again within seconds" // checked only in the calm period at the end
	Child     Rule = "a child is begun once, together with the step of its parent"
	ChildTold Rule = "a parent sees the recorded outcome of its child"
	ChildCut  Rule = "a canceled operation cancels the child that it awaits"
	Mended    Rule = "a person can resume a parked operation"
)

// Rules about messages that package inquiry verifies.
const (
	Published    Rule = "a message in the outbox is published, or is a dead letter"
	Said         Rule = "a published message was committed to the outbox"
	AsAdded      Rule = "a message is published as it was added"
	PublishOrder Rule = "the messages of a key are published in their order"
	Effect       Rule = "a message that was published has its effect, or is a dead letter"
	EffectOnce   Rule = "a message has its effect once for each consumer"
	EffectOrder  Rule = "the messages of a key have their effects in their order"
	Caused       Rule = "a message that a handler adds is committed with its effect, once"
	Dead         Rule = "a dead letter has had all its attempts"
	Forged       Rule = "another payload under a known id is refused"
	DoneTold     Rule = "a message that a consumer reports as done has its effect"
	InTime       Rule = "a message is published within two seconds of its commit, or of when it is due" // checked only without faults
	NoDeadlock   Rule = "batches do not deadlock, whatever the order of their messages"
)
