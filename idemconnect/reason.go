package idemconnect

import (
	"errors"
	"maps"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Reason is why the interceptor has answered in the place of the handler. It is the reason of the ErrorInfo among the details of the error.
type Reason = unary.Reason

// The reasons, with the code of each.
const (
	KeyMissing     = unary.KeyMissing     // CodeInvalidArgument
	KeyInvalid     = unary.KeyInvalid     // CodeInvalidArgument
	KeyReused      = unary.KeyReused      // CodeFailedPrecondition: the key belongs to another request. Nothing was executed
	InProgress     = unary.InProgress     // CodeAborted, with RetryInfo: try again with the same key
	OutcomeUnknown = unary.OutcomeUnknown // CodeUnavailable: try again with the same key. CodeUnknown if the call has none
	NotExecuted    = unary.NotExecuted    // CodeUnavailable: the database is away or busy. Try again with the same key
	Broken         = unary.Broken         // CodeInternal: what is wrong is in the log of the server
	Streaming      = unary.Streaming      // CodeUnimplemented: a stream cannot have a key
)

// Domain is that of the ErrorInfo.
const Domain = unary.Domain

// ReasonOf returns why the interceptor of a server has answered a call in the place of its handler, or "".
func ReasonOf(err error) Reason {
	said, _ := statusOf(err)
	return unary.ReasonOf(said)
}

// statusOf returns the status that an error of connect is. Its codes are those of gRPC.
func statusOf(err error) (*spb.Status, bool) {
	told, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, false
	}
	said := &spb.Status{Code: int32(told.Code()), Message: told.Message()}
	for _, detail := range told.Details() {
		said.Details = append(said.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type(), Value: detail.Bytes()})
	}
	return said, true
}

// errorOf returns the error that the status of an answer is.
func errorOf(answer unary.Answer) error {
	err := connect.NewError(connect.Code(answer.Said.GetCode()), errors.New(answer.Said.GetMessage()))
	for _, packed := range answer.Said.GetDetails() {
		if detail, invalid := connect.NewErrorDetail(packed); invalid == nil {
			err.AddDetail(detail)
		}
	}
	if told, ok := errors.AsType[*connect.Error](answer.Err); ok {
		maps.Copy(err.Meta(), told.Meta())
	}
	if answer.Replayed {
		err.Meta().Set(ReplayedHeader, "true")
	}
	return err
}
