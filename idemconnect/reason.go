package idemconnect

import (
	"errors"
	"maps"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Reason says why the interceptor answered instead of the handler. The details of the error contain
// an ErrorInfo with the Reason.
type Reason = unary.Reason

// The reasons, each with the code of its error.
const (
	KeyMissing     = unary.KeyMissing     // CodeInvalidArgument
	KeyInvalid     = unary.KeyInvalid     // CodeInvalidArgument
	KeyReused      = unary.KeyReused      // CodeFailedPrecondition: another request has the key; nothing was executed
	InProgress     = unary.InProgress     // CodeAborted, with RetryInfo: retry with the same key
	OutcomeUnknown = unary.OutcomeUnknown // CodeUnavailable: retry with the same key. Without a key: CodeUnknown
	NotExecuted    = unary.NotExecuted    // CodeUnavailable: the database is unavailable or busy; retry with the same key
	Broken         = unary.Broken         // CodeInternal: the server has logged the cause
	Streaming      = unary.Streaming      // CodeUnimplemented: a stream cannot have a key
)

// Domain is the domain in the ErrorInfo of every Reason.
const Domain = unary.Domain

// ReasonOf returns the reason for which an interceptor answered the call instead of the handler. It
// returns "" if the error comes from the handler or from connect-go.
func ReasonOf(err error) Reason {
	said, _ := statusOf(err)
	return unary.ReasonOf(said)
}

// statusOf converts a *connect.Error to a status, whose codes are the same. It returns false for
// any other error.
func statusOf(err error) (*spb.Status, bool) {
	answered, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, false
	}
	said := &spb.Status{Code: int32(answered.Code()), Message: answered.Message()}
	for _, detail := range answered.Details() {
		said.Details = append(said.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type(), Value: detail.Bytes()})
	}
	return said, true
}

// errorOf returns the status of an answer as a *connect.Error. If the answer also has an error of
// the handler, errorOf copies the metadata of this error.
func errorOf(answer unary.Answer) error {
	err := connect.NewError(connect.Code(answer.Said.GetCode()), errors.New(answer.Said.GetMessage()))
	for _, packed := range answer.Said.GetDetails() {
		if detail, invalid := connect.NewErrorDetail(packed); invalid == nil {
			err.AddDetail(detail)
		}
	}
	if answered, ok := errors.AsType[*connect.Error](answer.Err); ok {
		maps.Copy(err.Meta(), answered.Meta())
	}
	if answer.Replayed {
		err.Meta().Set(ReplayedHeader, "true")
	}
	return err
}
