package idemgrpc

import (
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Reason is why the interceptor has answered in the place of the handler. It is the reason of the ErrorInfo among the details of the status.
type Reason = unary.Reason

// The reasons, with the code of each.
const (
	KeyMissing     = unary.KeyMissing     // INVALID_ARGUMENT
	KeyInvalid     = unary.KeyInvalid     // INVALID_ARGUMENT
	KeyReused      = unary.KeyReused      // FAILED_PRECONDITION: the key belongs to another request. Nothing was executed
	InProgress     = unary.InProgress     // ABORTED, with RetryInfo: try again with the same key
	OutcomeUnknown = unary.OutcomeUnknown // UNAVAILABLE: try again with the same key. UNKNOWN if the call has none
	NotExecuted    = unary.NotExecuted    // UNAVAILABLE: the database is away or busy. Try again with the same key
	Broken         = unary.Broken         // INTERNAL: what is wrong is in the log of the server
	Streaming      = unary.Streaming      // UNIMPLEMENTED: a stream cannot have a key
)

// Domain is that of the ErrorInfo.
const Domain = unary.Domain

// ReasonOf returns why the interceptor of a server has answered a call in the place of its handler, or "".
func ReasonOf(err error) Reason { return unary.ReasonOf(status.Convert(err).Proto()) }
