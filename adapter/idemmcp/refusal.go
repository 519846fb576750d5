package idemmcp

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/idem-go/idem"
)

// Reason says why the middleware answered instead of the handler.
type Reason string

// The reasons of a Refusal.
const (
	KeyMissing       Reason = "IDEMPOTENCY_KEY_MISSING"
	ArgumentsInvalid Reason = "IDEMPOTENCY_ARGUMENTS_INVALID" // idem.HashJSON does not accept the arguments
	KeyInvalid       Reason = "IDEMPOTENCY_KEY_INVALID"
	KeyReused        Reason = "IDEMPOTENCY_KEY_REUSED"      // an earlier call used the key with other arguments
	InProgress       Reason = "IDEMPOTENCY_IN_PROGRESS"     // call again with the same key
	OutcomeUnknown   Reason = "IDEMPOTENCY_OUTCOME_UNKNOWN" // call again with the same key
	NotExecuted      Reason = "IDEMPOTENCY_NOT_EXECUTED"    // call again with the same key
	Broken           Reason = "IDEMPOTENCY_BROKEN"          // see the log of the server; the call may have been executed
)

// Refusal is the data of the protocol error with which the middleware answers a call that it
// refuses.
type Refusal struct {
	Reason       Reason `json:"reason"`
	Retryable    bool   `json:"retryable"` // the same call, with the same key, may succeed later
	RetryAfterMS int64  `json:"retryAfterMs,omitempty"`
}

// retryAfter returns the delay that the server asks for, or 0 if that delay is negative or above an
// hour.
func (r Refusal) retryAfter() time.Duration {
	if r.RetryAfterMS < 0 || r.RetryAfterMS > int64(time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(r.RetryAfterMS) * time.Millisecond
}

// RefusalOf returns the Refusal in err, the error of a call, and reports whether err has one.
func RefusalOf(err error) (Refusal, bool) {
	var refusal Refusal
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || json.Unmarshal(answer.Data, &refusal) != nil {
		return Refusal{}, false
	}
	return refusal, refusal.Reason != ""
}

// codeReused is the error code that the Universal Commerce Protocol prescribes if a key is used
// again with other arguments.
const codeReused = -32000

// refuse returns a protocol error with a Refusal. The error has the code of an internal error if
// the call may succeed later or the server is at fault, codeReused if the key was used with other
// arguments, and otherwise the code of invalid parameters.
func refuse(reason Reason, text string, retryable bool, after time.Duration) error {
	data, err := json.Marshal(Refusal{Reason: reason, Retryable: retryable, RetryAfterMS: after.Milliseconds()})
	if err != nil {
		return err
	}
	code := int64(jsonrpc.CodeInvalidParams)
	switch {
	case retryable || reason == Broken:
		code = jsonrpc.CodeInternalError
	case reason == KeyReused:
		code = codeReused
	}
	return &jsonrpc.Error{Code: code, Message: text, Data: data}
}

// refusalFor returns the refusal for an error of idem.Do, and whether to log the error. It returns
// nil if err is not an error for which the caller can be given a reason.
func refusalFor(err error) (refused error, log bool) {
	progress, isInProgress := errors.AsType[*idem.InProgressError](err)
	switch {
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return refuse(OutcomeUnknown, "it is not known yet whether the call was executed: call again with the same key", true, 0), true
	case isInProgress:
		return refuse(InProgress, "a call with this key is in progress: call again with the same key", true, progress.RetryAfter), false
	case errors.Is(err, idem.ErrMismatch):
		return refuse(KeyReused, "the key was used with other arguments, and that call stands: a new call needs a new key", false, 0), false
	case errors.Is(err, idem.ErrInvalidKey):
		return refuse(KeyInvalid, "the key is a string of 1 to 255 bytes", false, 0), false
	case idem.Retryable(err):
		return refuse(NotExecuted, "the call was not executed: call again with the same key", true, 0), true
	}
	return nil, false
}
