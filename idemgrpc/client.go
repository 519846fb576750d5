package idemgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// ClientConfig says how a client retries. The zero value works.
type ClientConfig = unary.ClientConfig

// WithKey gives the calls that are made with the context a key of the caller's: one that outlives the process, such as the id of what is
// to be done, with the step that it is. Without it a call has the key of its outgoing metadata, or a random one. So a server that forwards the
// metadata of what it was asked gives its own calls WithKey: otherwise two of them have one key. gRPC sends printable ASCII alone.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call under one key until it has an answer. It retries after UNAVAILABLE, ABORTED,
// and the end of an attempt that is not the end of the call; after RESOURCE_EXHAUSTED if the server says when. It obeys RetryInfo, and
// pushback as gRPC has it. If it gives up, the error is the status of the last attempt.
//
// All calls through an interceptor share its retry budget.
func ClientInterceptor(config ClientConfig) grpc.UnaryClientInterceptor {
	c := unary.NewClient(config)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if !c.Methods(method) {
			return invoker(ctx, method, req, reply, conn, opts...)
		}
		var trailer metadata.MD
		opts = append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))
		send := func(ctx context.Context) error {
			trailer = nil
			return invoker(ctx, method, req, reply, conn, opts...)
		}
		return c.Do(keyed(ctx), send, func(err error) unary.Failure {
			return unary.Failure{Said: status.Convert(err).Proto(), Pushback: trailer.Get("grpc-retry-pushback-ms")}
		})
	}
}

// keyed returns the context of a call with its key.
func keyed(ctx context.Context) context.Context {
	given, _ := metadata.FromOutgoingContext(ctx)
	key, isGiven := unary.KeyOf(ctx)
	if !isGiven && len(given.Get(KeyMetadata)) > 0 {
		return ctx
	}
	sent := metadata.Join(given)
	sent.Set(KeyMetadata, key)
	return metadata.NewOutgoingContext(ctx, sent)
}
