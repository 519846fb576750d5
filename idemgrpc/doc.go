// Package idemgrpc makes the unary calls of a gRPC service safe to retry, using [idem.Do]. It also
// has an interceptor for clients, which retries the calls.
//
// The server interceptor runs the handler in a transaction. The reply is recorded in the same
// transaction under the key of the call, so the writes of the handler and its reply are committed
// together or not at all. A later call with the same key and the same request gets the recorded
// reply.
//
//	keyed, err := idemgrpc.New(pool, idemgrpc.Config{Scope: scope})
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(keyed.Unary()), grpc.StreamInterceptor(keyed.Stream()))
//
// The handler must make all its writes on [Tx]. It may run more than once for a call, for example
// after a serialization failure. The writes of all earlier runs are then rolled back.
//
// # Outcomes
//
// If the status is OK, the writes are committed and the reply is recorded. INVALID_ARGUMENT,
// NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION and OUT_OF_RANGE are final: the
// writes are rolled back, and the status is recorded with its details. After any other status the
// writes are rolled back, nothing is recorded, and a retry with the same key runs the handler
// again.
//
// The record holds the bytes of the reply or of the status. Metadata that the handler sets is sent
// only to the first caller.
//
// [Reason] lists the cases in which the interceptor answers instead of the handler, with the code
// of each answer.
//
// # Streams
//
// A stream has no single reply that could be recorded. [Interceptor.Stream] refuses streams that
// may have an effect.
package idemgrpc
