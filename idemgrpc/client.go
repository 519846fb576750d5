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

// WithKey returns a context. Every call with this context is sent with the given key.
//
// Use a key that outlives the process, such as the ID of the task together with the name of the
// step. Without WithKey, a call is sent with the key in its outgoing metadata, or else with a
// random key. A server that forwards its incoming metadata should therefore use WithKey for its own
// calls. Otherwise all these calls have the same key. The key must be printable ASCII, because gRPC
// cannot send other characters in metadata.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call, with one key, until it has an
// answer.
//
// It retries after UNAVAILABLE and ABORTED. It also retries after DEADLINE_EXCEEDED and CANCELLED,
// as long as the context of the call has not ended. If the server asks for a delay, with RetryInfo
// or with the pushback of gRPC, the interceptor waits for the delay. After RESOURCE_EXHAUSTED it
// retries only if the server asks for a delay. If the interceptor gives up, the call returns the
// status of the last attempt.
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

// keyed returns the context of a call with the key in its outgoing metadata. If the context has a
// key of WithKey, this key is sent. Otherwise, a key that is already in the metadata is sent. If
// there is no key at all, a random key is sent.
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
