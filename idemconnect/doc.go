// Package idemconnect makes the unary calls of a Connect service safe to retry, using [idem.Do].
// Its client interceptor retries them. Both work with each protocol of connect-go: Connect, gRPC
// and gRPC-Web.
//
// The server interceptor runs the handler in a transaction. The reply is recorded in the same
// transaction under the key of the call, so effect and reply are committed together or not at all.
// A later call with the same key and the same request gets the recorded reply.
//
//	keyed, err := idemconnect.New(pool, idemconnect.Config{Scope: scope})
//	path, handler := shopconnect.NewOrdersHandler(orders, connect.WithInterceptors(keyed))
//
// The handler must make all its writes on [Tx]. It may run more than once for a call, for example
// after a serialization failure. All writes of the earlier runs are then rolled back.
//
// # Outcomes
//
// A reply is committed and recorded. An error of CodeInvalidArgument, CodeNotFound,
// CodeAlreadyExists, CodePermissionDenied, CodeFailedPrecondition or CodeOutOfRange is final: the
// writes are rolled back, and the error is recorded with its details. After any other error
// everything is rolled back, nothing is recorded, and the key is free.
//
// The record holds the bytes of the reply or of the error. Headers and trailers that the handler
// sets reach only the first caller. Module idemgrpc writes the same records, so a service can move
// from one module to the other.
//
// The interceptor's own answers have the codes listed at [Reason].
//
// # Streams
//
// A stream has no single reply that could be recorded. The interceptor refuses streams that may
// have an effect.
package idemconnect
