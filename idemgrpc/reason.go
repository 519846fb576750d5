package idemgrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem"
)

// Reason is why the interceptor has answered in the place of the handler. It is the reason of the ErrorInfo among the details of the status.
type Reason string

// The reasons, with the code of each.
const (
	KeyMissing     Reason = "IDEMPOTENCY_KEY_MISSING"     // INVALID_ARGUMENT
	KeyInvalid     Reason = "IDEMPOTENCY_KEY_INVALID"     // INVALID_ARGUMENT
	KeyReused      Reason = "IDEMPOTENCY_KEY_REUSED"      // FAILED_PRECONDITION: the key belongs to another request. Nothing was executed
	InProgress     Reason = "IDEMPOTENCY_IN_PROGRESS"     // ABORTED, with RetryInfo: try again with the same key
	OutcomeUnknown Reason = "IDEMPOTENCY_OUTCOME_UNKNOWN" // UNAVAILABLE: try again with the same key. UNKNOWN if the call has none
	NotExecuted    Reason = "IDEMPOTENCY_NOT_EXECUTED"    // UNAVAILABLE: the database is away or busy. Try again with the same key
	Broken         Reason = "IDEMPOTENCY_BROKEN"          // INTERNAL: what is wrong is in the log of the server
	Streaming      Reason = "IDEMPOTENCY_STREAMING"       // UNIMPLEMENTED: a stream cannot have a key
)

// Domain is that of the ErrorInfo.
const Domain = "idem-go"

// ReasonOf returns why the interceptor of a server has answered a call in the place of its handler, or "".
func ReasonOf(err error) Reason {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return Reason(info.Reason)
		}
	}
	return ""
}

// say returns the status of a reason.
func say(code codes.Code, reason Reason, text string, details ...protoadapt.MessageV1) error {
	s := status.New(code, text)
	if detailed, err := s.WithDetails(append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: string(reason), Domain: Domain}}, details...)...); err == nil {
		s = detailed
	}
	return s.Err()
}

func retryIn(d time.Duration) protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// answer returns the status for an error of idem.Do. isOurs says that the server has something to look at.
func answer(ctx context.Context, err error) (said error, isOurs bool) {
	progress, isInProgress := errors.AsType[*idem.InProgressError](err)
	switch {
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return say(codes.Unavailable, OutcomeUnknown, "it is not known yet whether the call was executed: try again with the same key"), true
	case isInProgress:
		return say(codes.Aborted, InProgress, "a call with this key is in progress: try again with the same key", retryIn(progress.RetryAfter)), false
	case errors.Is(err, idem.ErrMismatch):
		return say(codes.FailedPrecondition, KeyReused, "the key was used for another request: a new request needs a new key"), false
	case errors.Is(err, idem.ErrInvalidKey):
		return say(codes.InvalidArgument, KeyInvalid, "the key is 1 to 255 bytes of text, in one value of the metadata "+KeyMetadata), false
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err(), false
	case idem.Retryable(err):
		return say(codes.Unavailable, NotExecuted, "the call was not executed: try again with the same key"), true
	}
	return say(codes.Internal, Broken, "the call could not be executed"), true
}
