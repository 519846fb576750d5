// Package idemgrpc makes the unary calls of a gRPC service safe to retry, by [idem.Do], and retries them on the side of the client.
//
// The interceptor of the server runs the handler in a transaction, with which the reply is recorded under the key of the call: its effect and
// its reply are committed together or not at all. A call with the same key and the same request is given that reply.
//
//	keyed, err := idemgrpc.New(pool, idemgrpc.Config{Scope: scope})
//	server := grpc.NewServer(grpc.UnaryInterceptor(keyed.Unary()), grpc.StreamInterceptor(keyed.Stream()))
//
// The handler makes its writes on [Tx], and on nothing else. It may be called more than once for a call: after a serialization failure, say,
// when everything that it did has been rolled back.
//
// # What an answer means
//
// OK is committed and recorded. INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION and OUT_OF_RANGE are
// final: the writes are undone, and the status is recorded with its details. After any other status everything is undone, nothing is
// recorded, and the key is free.
//
// Recorded are the bytes of the reply, or of the status. Metadata that the handler sets is sent to the first caller alone.
//
// The interceptor itself answers with the codes of [Reason].
//
// # Streams
//
// There is no reply of a stream that could be recorded. [Interceptor.Stream] refuses those that may have an effect.
package idemgrpc
