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

// ClientConfig configures the retries of a client. The zero value works.
type ClientConfig = unary.ClientConfig

// WithKey returns a context. Every call with this context is sent with the given key. Use a key
// that outlives the process, such as the ID of the task together with the name of the step. Without
// WithKey, a call is sent with the key in its header, or else with a random key.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call, with one key, until it has an
// answer.
//
// It retries after CodeUnavailable, CodeAborted and lost answers. It also retries after
// CodeDeadlineExceeded and CodeCanceled, as long as the context of the call has not ended. If the
// server asks for a delay, with RetryInfo, Retry-After or the pushback of gRPC, the interceptor
// waits for the delay. After CodeResourceExhausted it retries only if the server asks for a delay.
// If the interceptor gives up, the call returns the error of the last attempt.
//
// All calls through one interceptor share a retry budget. Streams pass through.
func ClientInterceptor(config ClientConfig) connect.Interceptor {
	c := unary.NewClient(config)
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !req.Spec().IsClient || !c.Methods(req.Spec().Procedure) {
				return next(ctx, req)
			}
			sent := req.Header().Clone() // a copy without the headers that each attempt adds to req
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

// failureOf describes the error of an attempt for unary.Client.
func failureOf(err error) unary.Failure {
	answered, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return unary.Failure{}
	}
	said, _ := statusOf(err)
	f := unary.Failure{Said: said, Pushback: answered.Meta().Values("Grpc-Retry-Pushback-Ms")}
	if seconds, err := strconv.ParseUint(answered.Meta().Get("Retry-After"), 10, 31); err == nil {
		f.After = time.Duration(seconds) * time.Second
	}
	// If the answer is truncated or the stream is reset, the client gets no code from the server.
	// connect-go then returns CodeUnknown or CodeInternal.
	made := answered.Code() == connect.CodeUnknown || answered.Code() == connect.CodeInternal || errors.Is(err, io.ErrUnexpectedEOF)
	f.Lost = made && !connect.IsWireError(err)
	return f
}
