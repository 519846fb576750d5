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

// WithKey returns a context whose calls have the given key. Use a key that outlives the process,
// such as the ID of the task together with the name of the step. Without WithKey a call has the key
// in its own header, or a random one.
func WithKey(ctx context.Context, key string) context.Context { return unary.WithKey(ctx, key) }

// ClientInterceptor returns an interceptor that sends each call, with one key, until it has an
// answer.
//
// It retries after CodeUnavailable, CodeAborted and lost answers, and after an attempt that timed
// out while the call has time left. After CodeResourceExhausted it retries if the server says when.
// It obeys RetryInfo, Retry-After and the pushback of gRPC. If it gives up, the call returns the
// error of the last attempt.
//
// All calls through one interceptor share a retry budget. Streams pass through.
func ClientInterceptor(config ClientConfig) connect.Interceptor {
	c := unary.NewClient(config)
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !req.Spec().IsClient || !c.Methods(req.Spec().Procedure) {
				return next(ctx, req)
			}
			sent := req.Header().Clone() // each attempt adds headers of its own
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
	told, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return unary.Failure{}
	}
	said, _ := statusOf(err)
	f := unary.Failure{Said: said, Pushback: told.Meta().Values("Grpc-Retry-Pushback-Ms")}
	if seconds, err := strconv.ParseUint(told.Meta().Get("Retry-After"), 10, 31); err == nil {
		f.After = time.Duration(seconds) * time.Second
	}
	// A truncated answer or a reset stream has no code from the server. The client of connect makes
	// up CodeUnknown or CodeInternal for it.
	made := told.Code() == connect.CodeUnknown || told.Code() == connect.CodeInternal || errors.Is(err, io.ErrUnexpectedEOF)
	f.Lost = made && !connect.IsWireError(err)
	return f
}
