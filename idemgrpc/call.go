package idemgrpc

import (
	"context"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Unary returns the interceptor for unary calls. Install it after interceptors that authenticate
// the caller or recover from panics.
func (i *Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !i.config.Methods(info.FullMethod) {
			return handler(ctx, req)
		}
		var last *held // the metadata that the last run of the handler has set
		answer := i.server.Do(ctx, unary.Call{
			Method: info.FullMethod, Request: req, Status: statusOf,
			Scope: func() (string, error) { return i.config.Scope(ctx, info, req) },
			Key:   func() (string, bool) { return i.config.Key(ctx, req) },
			Handle: func(ctx context.Context, request proto.Message) (any, error) {
				ctx, last = hold(ctx)
				return handler(ctx, request)
			},
		})
		if answer.Replayed {
			_ = grpc.SetHeader(ctx, metadata.Pairs(ReplayedMetadata, "true")) // fails only outside of a gRPC server
		}
		if answer.Ran {
			last.release()
		}
		if answer.Said != nil {
			return nil, status.ErrorProto(answer.Said)
		}
		return answer.Reply, answer.Err
	}
}

// statusOf returns the status of an error, and false if the error has none.
func statusOf(err error) (*spb.Status, bool) {
	s, ok := status.FromError(err)
	return s.Proto(), ok
}
