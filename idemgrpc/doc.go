// Package idemgrpc makes the unary calls of a gRPC service safe to retry, using [idem.Do]. Its
// client interceptor retries them.
//
// The server interceptor runs the handler in a transaction. The reply is recorded in the same
// transaction under the key of the call, so effect and reply are committed together or not at all.
// A later call with the same key and the same request gets the recorded reply.
//
//	keyed, err := idemgrpc.New(pool, idemgrpc.Config{Scope: scope})
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(keyed.Unary()), grpc.StreamInterceptor(keyed.Stream()))
//
// The handler must make all its writes on [Tx]. It may run more than once for a call, for example
// after a serialization failure. All writes of the earlier runs are then rolled back.
//
// # Outcomes
//
// OK is committed and recorded. INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
// FAILED_PRECONDITION and OUT_OF_RANGE are final: the writes are rolled back, and the status is
// recorded with its details. After any other status everything is rolled back, nothing is recorded,
// and the key is free.
//
// The record holds the bytes of the reply or of the status. Metadata that the handler sets reaches
// only the first caller.
//
// The interceptor's own answers have the codes listed at [Reason].
//
// # Streams
//
// A stream has no single reply that could be recorded. [Interceptor.Stream] refuses streams that
// may have an effect.
package idemgrpc
