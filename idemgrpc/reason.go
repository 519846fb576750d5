package idemgrpc

import (
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Reason says why the interceptor answered instead of the handler. It is the reason of the
// ErrorInfo in the details of the status.
type Reason = unary.Reason

// The reasons, each with its code.
const (
	KeyMissing     = unary.KeyMissing     // INVALID_ARGUMENT
	KeyInvalid     = unary.KeyInvalid     // INVALID_ARGUMENT
	KeyReused      = unary.KeyReused      // FAILED_PRECONDITION: another request has the key; nothing was executed
	InProgress     = unary.InProgress     // ABORTED, with RetryInfo: retry with the same key
	OutcomeUnknown = unary.OutcomeUnknown // UNAVAILABLE: retry with the same key; UNKNOWN for a call without a key
	NotExecuted    = unary.NotExecuted    // UNAVAILABLE: the database is unavailable or busy; retry with the same key
	Broken         = unary.Broken         // INTERNAL: the server has logged the cause
	Streaming      = unary.Streaming      // UNIMPLEMENTED: a stream cannot have a key
)

// Domain is the domain of the ErrorInfo.
const Domain = unary.Domain

// ReasonOf returns the reason for which an interceptor answered the call instead of the handler. It
// returns "" for errors of the handler and of gRPC.
func ReasonOf(err error) Reason { return unary.ReasonOf(status.Convert(err).Proto()) }
