package idemgrpc

import (
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Reason says why the interceptor answered instead of the handler. The details of the status
// contain an ErrorInfo with the Reason.
type Reason = unary.Reason

// The reasons, each with the code of its status.
const (
	KeyMissing     = unary.KeyMissing     // INVALID_ARGUMENT
	KeyInvalid     = unary.KeyInvalid     // INVALID_ARGUMENT
	KeyReused      = unary.KeyReused      // FAILED_PRECONDITION: another request has the key; nothing was executed
	InProgress     = unary.InProgress     // ABORTED, with RetryInfo: retry with the same key
	OutcomeUnknown = unary.OutcomeUnknown // UNAVAILABLE: retry with the same key. For a call without a key: UNKNOWN
	NotExecuted    = unary.NotExecuted    // UNAVAILABLE: the database is unavailable or busy; retry with the same key
	Broken         = unary.Broken         // INTERNAL: the server has logged the cause
	Streaming      = unary.Streaming      // UNIMPLEMENTED: a stream cannot have a key
)

// Domain is the domain in the ErrorInfo of every Reason.
const Domain = unary.Domain

// ReasonOf returns the reason for which an interceptor answered the call instead of the handler. It
// returns "" if the error comes from the handler or from gRPC.
func ReasonOf(err error) Reason { return unary.ReasonOf(status.Convert(err).Proto()) }
