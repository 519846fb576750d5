package idemtest

import (
	"fmt"
	"sync"
	"testing"
)

// promise is a property that a suite checks. It consists of a name, the text of a violation, and
// advice on how to fix it. docs/testing-reference.md quotes name and text.
type promise struct{ name, broken, mend string }

// These are the promises of handlers and functions. Most apply to consumers and operations too.
var (
	sameRequest = promise{"same-request", "Request asks for something else each time",
		"have every Request return the same method, address, header and body; above all the same key"}
	firstAnswer = promise{"first-answer", "the first request, with nothing in its way, is not answered with success",
		"give the suite a request that succeeds on what New sets up"}
	hasEffect = promise{"has-effect", "the first request has no effect that Effects counts",
		"have Effects count what the request does: rows, calls of a fake of another system, messages"}
	onRecord = promise{"on-record", "the request was answered with success, and nothing in the database remembers it",
		"let idem make the record: is the code wrapped, is the key read from where the request has it, is the method one that needs a key? A memory of the process is gone when it restarts"}
	txKept = promise{"transaction-kept", "the function ends the transaction that it was given",
		"leave COMMIT and ROLLBACK to idem, in SQL as well: return an error to undo, idem.Reject to undo for good"}
	errorsKept = promise{"errors-returned", "the function ignores an error of a statement, which has aborted its transaction",
		"return the error, or have what may fail under a savepoint: pgx.BeginFunc(ctx, tx, …)"}
	oneKey = promise{"one-key", "a duplicate has another key or scope than the request that it repeats",
		"take the key from the caller, once for all attempts, and the scope from who the caller is: not from the time, a random number, an address or a credential that changes"}
	oneEffect = promise{"one-effect", "a duplicate has an effect although its key is recorded",
		"move the effect into the function that idem runs: what is done before or behind it is done by every duplicate"}
	sameAsked = promise{"same-fingerprint", "the same request, sent again, is refused as another one",
		"hash what the caller asks for, and nothing that differs between attempts: no time, no header of the transport, no attempt number, no random value"}
	sameAnswer = promise{"same-answer", "a duplicate is given another answer than the request that it repeats",
		"make the answer inside of the function that idem runs, from what is committed, and return it as the response that is recorded"}
	fullAnswer = promise{"full-answer", "a duplicate is given an empty answer where the first caller was given a full one",
		"write the answer where idem records it, before the function or the handler returns: a framework that renders later, or to another writer, is to be wrapped as a whole"}
	payloadHashed = promise{"payload-in-fingerprint", "another payload under the same key is given the recorded answer",
		"make the payload part of the hash: it is left out of it, or the hash of all payloads is the same"}
	payloadRefused = promise{"payload-refused", "another payload under the same key is executed",
		"keep the payload out of scope and key: the key alone says which request it is, and the hash that it is the same"}
	everyKey = promise{"every-key", "a request under another key is taken for a duplicate of the first",
		"pass on the key that the caller has sent, all of it: not a constant, a part of it, or the key of a session"}
	ownScope = promise{"own-scope", "another principal with the same key is not served as a caller of their own",
		"make the principal part of the scope, as idem.Scope(tenant, operation): callers that share a scope share the answers"}
	atOnce = promise{"once-at-once", "duplicates at the same time have more than one effect",
		"leave the decision who executes to idem: a look whether it is done already, and then doing it, lets two through"}
	atOnceAnswered = promise{"answered-at-once", "duplicates at the same time are not all given the answer",
		"let a duplicate that finds its key in progress be told to come again (409 with Retry-After, idem.Retryable), not that it has failed"}
	inTransaction = promise{"effect-in-transaction", "an effect is not in the transaction of its record",
		"make every write on the tx that idem gives, not on the pool or another connection; put calls to other systems behind the commit (outbox) or into a step of package operation, whose key the other system knows again"}
	afterCommit = promise{"answer-after-commit", "success was answered before anything was committed",
		"answer, and fill a cache, when idem has returned without an error: its function ends before COMMIT, which may still fail"}
	noEffectLost = promise{"effect-with-record", "the key is recorded as done and the effect is missing",
		"make the effect inside of the function that idem runs, on its tx, in every run of it: not behind the commit, not in a goroutine, and not only the first time that it is run"}
	failureNotFinal = promise{"failure-not-final", "a passing failure was made the final answer",
		"return errors of the database as they are: do not turn them into a rejection, a 4xx or a success; what may go well next time has to leave the key free"}
	keyFree = promise{"key-free", "after a failure the key stays taken: retries are never answered",
		"hold a key by the transaction that idem opens, which ends with its connection: no row in state \"in progress\", no lock in memory, no lease"}
	oneConnection = promise{"one-connection", "the code waits for a second connection while it holds the first",
		"use the tx alone inside of the function that idem runs; what needs a connection of its own comes before or behind it"}
	remembered = promise{"remembered", "a duplicate that comes late is executed again",
		"keep records longer than clients may retry: WithTTL, Config.TTL, WithRetention"}
	returns = promise{"returns", "the code does not return",
		"bound every wait by the context: no lock that a failure leaves behind, no channel that nothing closes"}
)

// These promises replace promises of the list above in the suite of a consumer.
var (
	acknowledgedBehind = promise{"acknowledged-behind-effect", "a message was acknowledged without its effect",
		"acknowledge it when inbox says Done, Duplicate or Dead: after Retry, or an error, leave it to the broker"}
	everyMessage = promise{"every-message", "a message was taken for the duplicate of another one",
		"know a message by its source and the id that its producer has given it: not by its payload, a short hash or a part of the id"}
	otherMessageKept = promise{"other-message-kept", "another payload under the id of a message was acknowledged, and is nowhere",
		"give inbox the payload, and do not hide its ErrMismatch: a producer that uses an id twice is to be noticed"}
	onRecordMessage = promise{"on-record", "the message was acknowledged, and nothing in the database remembers it",
		"let inbox.Handle or inbox.Batch give it its effect: a memory of the process, or of the broker, does not last as long as the effect"}
)

// These promises replace or extend the list in the suite of an operation.
var (
	oncePerStep = promise{"once-per-step", "an effect of the operation was repeated",
		"have every effect in a step, and nothing between the steps; pass the key of each Call on to the other system, and have its fake know the key again"}
	goesOn = promise{"goes-on", "after a failure the operation is parked instead of going on",
		"take the same steps in every run: no time, random number, order of a map or state of the process may decide which; take such a value in a step, which records it, and a call that may be made again as Keyed or Asked"}
	fromSteps = promise{"answer-from-steps", "an operation that another process resumes has another answer",
		"have a step return what is needed behind it, and use its value: a variable that the function of a step sets is not set when the step is already recorded"}
	oldGoesOn = promise{"new-code-goes-on", "the new code parks an operation that the last release has begun",
		"keep position, name and type of recorded steps, and ask Op.Changed before new ones; or give the operation another name, and keep the old one as long as any of it is under way"}
	oldOnce = promise{"new-code-repeats-nothing", "the new code repeats an effect of an operation that the last release has begun",
		"keep the names of steps: a step that is renamed is another step, with another key"}
)

// report collects the findings of a suite and reports each promise once.
type report struct {
	testing.TB
	mu    sync.Mutex
	found map[string]bool
}

func newReport(t testing.TB) *report { return &report{TB: t, found: map[string]bool{}} }

// breaks reports that p is broken, unless it was reported before. The first line is the same for
// every program: the name of the promise and what is wrong. format and args say what happened.
// breaks always returns false, so that a check can return its result.
func (r *report) breaks(p promise, format string, args ...any) bool {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found[p.name] {
		return false
	}
	r.found[p.name] = true
	r.Errorf("idemtest: %s: %s\n    what happened: %s\n    how to mend it: %s", p.name, p.broken, fmt.Sprintf(format, args...), p.mend)
	return false
}

// isBroken reports whether p was reported.
func (r *report) isBroken(p promise) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[p.name]
}

// broken returns the number of reported promises.
func (r *report) broken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}
