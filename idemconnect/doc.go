// Package idemconnect makes the unary calls of a Connect service safe to retry, using [idem.Do]. It
// also has an interceptor for clients, which retries the calls. Both interceptors work with all
// protocols of connect-go: Connect, gRPC and gRPC-Web.
//
// The server interceptor runs the handler in a transaction. The reply is recorded in the same
// transaction under the key of the call, so the writes of the handler and its reply are committed
// together or not at all. A later call with the same key and the same request gets the recorded
// reply.
//
//	keyed, err := idemconnect.New(pool, idemconnect.Config{Scope: scope})
//	path, handler := shopconnect.NewOrdersHandler(orders, connect.WithInterceptors(keyed))
//
// The handler must make all its writes on [Tx]. It may run more than once for a call, for example
// after a serialization failure. The writes of all earlier runs are then rolled back.
//
// # Outcomes
//
// If the handler returns a reply, the writes are committed and the reply is recorded. An error with
// CodeInvalidArgument, CodeNotFound, CodeAlreadyExists, CodePermissionDenied,
// CodeFailedPrecondition or CodeOutOfRange is final: the writes are rolled back, and the error is
// recorded with its details. After any other error the writes are rolled back, nothing is recorded,
// and a retry with the same key runs the handler again.
//
// The record holds the bytes of the reply or of the error. Headers and trailers that the handler
// sets are sent only to the first caller. Module idemgrpc writes the same records, so a service can
// move from one module to the other.
//
// [Reason] lists the cases in which the interceptor answers instead of the handler, with the code
// of each answer.
//
// # Streams
//
// A stream has no single reply that could be recorded. The interceptor refuses streams that may
// have an effect.
package idemconnect
