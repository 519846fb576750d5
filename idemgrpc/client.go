package idemgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// ClientConfig configures the retries of a client. The zero value works.
type ClientConfig = unary.ClientConfig

// WithKey returns a context whose calls have the given key.
//
// Use a key that outlives the process, such as the ID of the task together with the name of the
// step. Without WithKey a call has the key in its outgoing metadata, or a random one. A server that
// forwards incoming metadata should therefore use WithKey for its own calls, or two of them get the
// same key. The key has to be printable ASCII, because gRPC sends nothing else.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call, with one key, until it has an
// answer.
//
// It retries after UNAVAILABLE and ABORTED, and after an attempt that timed out while the call has
// time left. After RESOURCE_EXHAUSTED it retries if the server says when. It obeys RetryInfo and
// the pushback of gRPC. If it gives up, the call returns the status of the last attempt.
//
// All calls through one interceptor share a retry budget.
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

// keyed returns the context of a call with the key in its outgoing metadata. A key of WithKey takes
// precedence over the key in the metadata, which takes precedence over a random one.
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
