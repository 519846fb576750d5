// Package idemconnect makes the unary calls of a Connect service safe to retry, by [idem.Do], and retries them on the side of the client. It works
// in each protocol that connect-go speaks: Connect, gRPC and gRPC-Web.
//
// The interceptor of the server runs the handler in a transaction, with which the reply is recorded under the key of the call: its effect and
// its reply are committed together or not at all. A call with the same key and the same request is given that reply.
//
//	keyed, err := idemconnect.New(pool, idemconnect.Config{Scope: scope})
//	path, handler := shopconnect.NewOrdersHandler(orders, connect.WithInterceptors(keyed))
//
// The handler makes its writes on [Tx], and on nothing else. It may be called more than once for a call: after a serialization failure, say,
// when everything that it did has been rolled back.
//
// # What an answer means
//
// A reply is committed and recorded. An error of CodeInvalidArgument, CodeNotFound, CodeAlreadyExists, CodePermissionDenied, CodeFailedPrecondition or
// CodeOutOfRange is final: the writes are undone, and the error is recorded with its details. After any other error everything is undone, nothing is
// recorded, and the key is free.
//
// Recorded are the bytes of the reply, or of the error. The headers and trailers that the handler sets are sent to the first caller alone. Records
// are those of module idemgrpc: a service that moves from one to the other goes on with them.
//
// The interceptor itself answers with the codes of [Reason].
//
// # Streams
//
// There is no reply of a stream that could be recorded. The interceptor refuses those that may have an effect.
package idemconnect
