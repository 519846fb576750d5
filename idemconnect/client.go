package idemconnect

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// ClientConfig says how a client retries. The zero value works.
type ClientConfig = unary.ClientConfig

// WithKey gives the calls that are made with the context a key of the caller's: one that outlives the process, such as the id of what is
// to be done, with the step that it is. Without it a call has the key of its own header, or a random one.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call under one key until it has an answer. It retries after CodeUnavailable, CodeAborted,
// an answer that was lost on its way, and the end of an attempt that is not the end of the call; after CodeResourceExhausted if the server says when.
// It obeys RetryInfo, Retry-After, and pushback as gRPC has it. If it gives up, the error is that of the last attempt.
//
// All calls through an interceptor share its retry budget. Streams pass through.
func ClientInterceptor(config ClientConfig) connect.Interceptor {
	c := unary.NewClient(config)
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !req.Spec().IsClient || !c.Methods(req.Spec().Procedure) {
				return next(ctx, req)
			}
			sent := req.Header().Clone() // an attempt adds what is its own
			key, isGiven := unary.KeyOf(ctx)
			if isGiven || len(sent.Values(KeyHeader)) == 0 {
				sent.Set(KeyHeader, key)
			}
			var reply connect.AnyResponse
			err := c.Do(ctx, func(ctx context.Context) (err error) {
				restore(req.Header(), sent)
				reply, err = next(ctx, req)
				return err
			}, failureOf)
			if err != nil {
				return nil, err
			}
			return reply, nil
		}
	})
}

// failureOf returns what an attempt has ended with.
func failureOf(err error) unary.Failure {
	told, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return unary.Failure{}
	}
	said, _ := statusOf(err)
	f := unary.Failure{Said: said, Pushback: told.Meta().Values("Grpc-Retry-Pushback-Ms")}
	if seconds, err := strconv.ParseUint(told.Meta().Get("Retry-After"), 10, 31); err == nil {
		f.After = time.Duration(seconds) * time.Second
	}
	// An answer that ends too early, or a stream that is reset, has no code that the server has said: connect's client makes one up.
	made := told.Code() == connect.CodeUnknown || told.Code() == connect.CodeInternal || errors.Is(err, io.ErrUnexpectedEOF)
	f.Lost = made && !connect.IsWireError(err)
	return f
}
