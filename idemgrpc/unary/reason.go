package unary

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem"
)

// Names of metadata and, in Connect, of HTTP headers.
const (
	KeyMetadata      = "idempotency-key"      // the key of a call
	ReplayedMetadata = "idempotency-replayed" // "true" in an answer that an earlier call recorded
)

// Reason says why the interceptor answered instead of the handler. The details of the status
// contain an ErrorInfo with the Reason.
type Reason string

// The reasons, each with the code of its status.
const (
	KeyMissing Reason = "IDEMPOTENCY_KEY_MISSING" // INVALID_ARGUMENT
	KeyInvalid Reason = "IDEMPOTENCY_KEY_INVALID" // INVALID_ARGUMENT
	// FAILED_PRECONDITION: another request has the key; nothing was executed.
	KeyReused  Reason = "IDEMPOTENCY_KEY_REUSED"
	InProgress Reason = "IDEMPOTENCY_IN_PROGRESS" // ABORTED, with RetryInfo: retry with the same key
	// UNAVAILABLE: retry with the same key. For a call without a key, the code is UNKNOWN.
	OutcomeUnknown Reason = "IDEMPOTENCY_OUTCOME_UNKNOWN"
	// UNAVAILABLE: the database is unavailable or busy; retry with the same key.
	NotExecuted Reason = "IDEMPOTENCY_NOT_EXECUTED"
	Broken      Reason = "IDEMPOTENCY_BROKEN"    // INTERNAL: the server has logged the cause
	Streaming   Reason = "IDEMPOTENCY_STREAMING" // UNIMPLEMENTED: a stream cannot have a key
)

// Domain is the domain in the ErrorInfo of every Reason.
const Domain = "idem-go"

// ReasonOf returns the reason in the details of a status. It returns "" if the status does not come
// from an interceptor of this module or of idemconnect.
func ReasonOf(said *spb.Status) Reason {
	for _, detail := range said.GetDetails() {
		var info errdetails.ErrorInfo
		if detail.MessageIs(&info) && detail.UnmarshalTo(&info) == nil && info.Domain == Domain {
			return Reason(info.Reason)
		}
	}
	return ""
}

// Say returns a status with the given code and text. The details of the status are an ErrorInfo
// with the reason, followed by the given details.
func Say(as code.Code, reason Reason, text string, details ...proto.Message) *spb.Status {
	said := &spb.Status{Code: int32(as), Message: text}
	for _, detail := range append([]proto.Message{&errdetails.ErrorInfo{Reason: string(reason), Domain: Domain}}, details...) {
		if packed, err := anypb.New(detail); err == nil {
			said.Details = append(said.Details, packed)
		}
	}
	return said
}

// answer returns the status for an error of idem.Do. The result isOurs is true if the client has
// not caused the error, so that the error should be logged.
func answer(ctx context.Context, err error) (said *spb.Status, isOurs bool) {
	progress, isInProgress := errors.AsType[*idem.InProgressError](err)
	switch {
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return Say(code.Code_UNAVAILABLE, OutcomeUnknown, "it is not known yet whether the call was executed: try again with the same key"), true
	case isInProgress:
		wait := &errdetails.RetryInfo{RetryDelay: durationpb.New(progress.RetryAfter)}
		return Say(code.Code_ABORTED, InProgress, "a call with this key is in progress: try again with the same key", wait), false
	case errors.Is(err, idem.ErrMismatch):
		return Say(code.Code_FAILED_PRECONDITION, KeyReused, "the key was used for another request: a new request needs a new key"), false
	case errors.Is(err, idem.ErrInvalidKey):
		return Say(code.Code_INVALID_ARGUMENT, KeyInvalid, "the key is 1 to 255 bytes of text, in one value of "+KeyMetadata), false
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &spb.Status{Code: int32(code.Code_DEADLINE_EXCEEDED), Message: ctx.Err().Error()}, false
	case ctx.Err() != nil:
		return &spb.Status{Code: int32(code.Code_CANCELLED), Message: ctx.Err().Error()}, false
	case idem.Retryable(err):
		return Say(code.Code_UNAVAILABLE, NotExecuted, "the call was not executed: try again with the same key"), true
	}
	return Say(code.Code_INTERNAL, Broken, "the call could not be executed"), true
}
