package idemtest

import (
	"fmt"
	"sync"
	"testing"
)

// promise is a property that a suite checks. broken is the text that reports a violation, and fix
// says how to repair the code. docs/testing-reference.md quotes name and broken.
type promise struct{ name, broken, fix string }

// These promises are checked for handlers and functions. Most of them are also checked for
// consumers and operations.
var (
	sameRequest = promise{"same-request", "Request returns a different request each time",
		"make Request return the same method, URL, header and body each time, and above all the same key"}
	firstAnswer = promise{"first-answer", "the first request, without any fault, is not answered with success",
		"give the suite a request that succeeds on the data that New sets up"}
	hasEffect = promise{"has-effect", "the first request has no effect that Effects counts",
		"make Effects count what the request does: rows, messages, calls to the fake of another system"}
	recorded = promise{"on-record", "the request was answered with success, and the database has no record of it",
		"let idem make the record. Is the code wrapped? Is the key read from the place where the request has it? Does the method need a key? The " +
			"memory of a process is lost when it restarts"}
	txKept = promise{"transaction-kept", "the function ends the transaction that it received",
		"leave COMMIT and ROLLBACK to idem, in SQL as well. Return an error to undo the writes, or idem.Reject to undo them for good"}
	errorsKept = promise{"errors-returned", "the function ignores an error of a statement, which has aborted its transaction",
		"return the error, or run a statement that may fail in a savepoint: pgx.BeginFunc(ctx, tx, …)"}
	oneKey = promise{"one-key", "a duplicate has another key or scope than the request that it repeats",
		"take the key from the caller, the same one for all attempts, and the scope from the identity of the caller. Do not use the time, a " +
			"random number, an address or a credential that changes"}
	oneEffect = promise{"one-effect", "a duplicate has an effect although its key is recorded",
		"move the effect into the function that idem runs: every duplicate repeats an effect that is made before or after idem"}
	sameAsked = promise{"same-fingerprint", "the same request, sent again, is refused as a different one",
		"hash what the caller asks for, and nothing that differs between attempts: no time, no header of a proxy, no attempt number, no random " +
			"value"}
	sameAnswer = promise{"same-answer", "a duplicate gets another answer than the request that it repeats",
		"make the answer inside the function that idem runs, from what it commits, and return it as the response that is recorded"}
	fullAnswer = promise{"full-answer", "a duplicate gets an empty answer although the first caller got a full one",
		"write the answer before the function or the handler returns, where idem records it. If a framework renders later or to another writer, " +
			"wrap the whole framework"}
	payloadHashed = promise{"payload-in-fingerprint", "another payload under the same key gets the recorded answer",
		"make the payload part of the hash: it is missing there, or all payloads have the same hash"}
	payloadRefused = promise{"payload-refused", "another payload under the same key is executed",
		"keep the payload out of scope and key. The key says which request it is, and the hash says whether it is the same one"}
	everyKey = promise{"every-key", "a request with another key is treated as a duplicate of the first",
		"pass on the whole key that the caller sent: not a constant, a part of the key, or the key of a session"}
	ownScope = promise{"own-scope", "another principal with the same key does not get an execution of its own",
		"make the principal part of the scope, as in idem.Scope(tenant, operation): callers that share a scope share the answers"}
	atOnce = promise{"once-at-once", "simultaneous duplicates have more than one effect",
		"let idem decide which request executes. Code that first checks whether the work is done, and then does it, lets two requests through"}
	atOnceAnswered = promise{"answered-at-once", "not all simultaneous duplicates get the answer",
		"tell a duplicate whose key is in progress to retry (409 with Retry-After, idem.Retryable), and not that it has failed"}
	inTransaction = promise{"effect-in-transaction", "an effect is not in the transaction of its record",
		"make every write on the tx that idem passes, not on the pool or another connection. Make a call to another system after the commit " +
			"(outbox), or in a step of package operation with a key that the other system recognizes"}
	afterCommit = promise{"answer-after-commit", "success was answered before anything was committed",
		"answer, and fill a cache, after idem has returned without an error: its function ends before COMMIT, which may still fail"}
	noEffectLost = promise{"effect-with-record", "the key is recorded as done and its effect is missing",
		"make the effect inside the function that idem runs, on its tx, in every run of the function. Do not make it after the commit, in a " +
			"goroutine, or in the first run only"}
	failureNotFinal = promise{"failure-not-final", "a temporary failure became the final answer",
		"return errors of the database unchanged: do not turn them into a rejection, a 4xx or a success. A request that may succeed next time " +
			"must leave the key free"}
	keyFree = promise{"key-free", "after a failure the key stays in progress: retries never get an answer",
		"let the transaction that idem opens hold the key, which ends with its connection. Use no row in state \"in progress\", no lock in " +
			"memory, no lease"}
	oneConnection = promise{"one-connection", "the code waits for a second connection while it holds the first",
		"use only the tx inside the function that idem runs. Work that needs another connection comes before or after it"}
	remembered = promise{"remembered", "a duplicate that arrives late is executed again",
		"keep records longer than clients may retry: WithTTL, Config.TTL, WithRetention"}
	returns = promise{"returns", "the code does not return",
		"bound every wait by the context. Hold no lock after a failure, and wait for no channel that may never be closed"}
)

// These promises are checked for consumers. They replace the corresponding promises of handlers and
// functions.
var (
	acknowledgedAfter = promise{"acknowledged-behind-effect", "a message was acknowledged without its effect",
		"acknowledge a message if inbox returns Done, Duplicate or Dead. After Retry, or an error, leave it to the broker"}
	everyMessage = promise{"every-message", "a message was treated as a duplicate of another one",
		"identify a message by its source and the id from its producer: not by its payload, a short hash or a part of the id"}
	otherMessageKept = promise{"other-message-kept", "another payload under the id of a message was acknowledged and lost",
		"pass the payload to inbox, and do not hide its ErrMismatch: a person must learn of a producer that uses an id twice"}
	messageRecorded = promise{"on-record", "the message was acknowledged, and the database has no record of it",
		"make the effect in inbox.Handle or inbox.Batch: the memory of a process, or of the broker, does not last as long as the effect"}
)

// These promises are checked for operations. Some of them replace a promise of handlers and
// functions, and the others are checked in addition.
var (
	oncePerStep = promise{"once-per-step", "an effect of the operation was repeated",
		"make every effect in a step, and none between the steps. Pass the key of each Call to the other system, and let its fake recognize the " +
			"key"}
	resumes = promise{"goes-on", "after a failure the operation is parked and does not continue",
		"take the same steps in every run: no time, random number, order of a map or state of the process may decide them. Get such a value in a " +
			"step, which records it, and make a call that may be repeated Keyed or Asked"}
	fromSteps = promise{"answer-from-steps", "an operation that another process resumes returns another answer",
		"return from a step what later code needs, and use that value. A variable that the function of a step sets stays empty if the step is " +
			"already recorded"}
	newCodeResumes = promise{"new-code-goes-on", "the new code parks an operation that the previous release has started",
		"keep position, name and type of recorded steps, and ask Op.Changed before new ones. Or give the operation another name, and keep the " +
			"old one until all its operations have ended"}
	newCodeRepeatsNothing = promise{"new-code-repeats-nothing", "the new code repeats an effect of an operation that the previous release has started",
		"keep the names of steps: a renamed step is another step, with another key"}
)

// report collects the findings of a suite and reports each promise once.
type report struct {
	testing.TB
	mu    sync.Mutex
	found map[string]bool
}

func newReport(t testing.TB) *report { return &report{TB: t, found: map[string]bool{}} }

// breaks reports that the promise p is broken, unless p was reported before. The first line is the
// same for every program: the name of the promise and what is wrong. format and args say what
// happened. breaks always returns false, so that a check can return its result.
func (r *report) breaks(p promise, format string, args ...any) bool {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found[p.name] {
		return false
	}
	r.found[p.name] = true
	r.Errorf("idemtest: %s: %s\n    what happened: %s\n    how to fix it: %s", p.name, p.broken, fmt.Sprintf(format, args...), p.fix)
	return false
}

// isBroken reports whether the promise p was reported as broken.
func (r *report) isBroken(p promise) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[p.name]
}

// broken returns the number of promises that were reported as broken.
func (r *report) broken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}
