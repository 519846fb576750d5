// Package idemhttp gives HTTP handlers the guarantee of package idem: a request with an
// Idempotency-Key takes effect once, and every repetition gets the same answer.
//
//	middleware, err := idemhttp.New(pool, idemhttp.Config{Scope: scope})
//	...
//	mux.Handle("POST /orders", middleware.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		tx := idemhttp.Tx(r.Context())
//		// write on tx, and answer on w
//	})))
//
// [Middleware.Wrap] is ordinary middleware. The handler gets its transaction from [Tx].
// [Middleware.Handle] passes the transaction as an argument, and accepts an error as the answer. In
// both cases the handler runs in one transaction, its answer is recorded in that transaction, and
// nothing is sent before the COMMIT. So a client never sees a success that was rolled back.
//
// # What happens to a request
//
//   - A request whose method is not in Config.Methods passes through unchanged.
//   - Config.Scope names the caller and the operation. It has no default, because callers that
//     share a scope can get each other's answers.
//   - The middleware reads the key from the header. It reads the whole body, up to Config.MaxBody.
//   - It computes the fingerprint of the request, a hash, to detect a key that is reused for
//     another request.
//   - It calls [idem.Do], which runs the handler or finds the recorded answer.
//   - It sends the answer. A replay has the header Idempotency-Replayed.
//
// If the handler does not answer, the middleware answers with a [Problem] in the format of RFC
// 9457. If the handler returns a *Problem as its error, the problem is the answer. Any other error
// of a handler is logged and answered with 500, or with 503 if it is transient. The client never
// gets a 4xx for such an error.
//
// # Time limits
//
// Give every request a deadline, with a few lines of middleware around context.WithTimeout.
// Otherwise a database that stops responding blocks the request forever. Do not use
// http.TimeoutHandler: it answers while the handler is still running, and may report a failure of a
// request that is then committed.
//
// Config.Wait should be shorter than the deadline of the request. http.Server.WriteTimeout and the
// timeout of a proxy should be ten seconds longer than the deadline, because idem may wait ten
// seconds longer for the outcome of a COMMIT. net/http cancels the request of a client that closes
// its half of the connection. If this happens before the COMMIT, everything is rolled back, and the
// client can still read the answer, a 503.
//
// # Which answers are recorded
//
// Config.Decide decides by the status of the answer. The default is as follows. Below 400 the
// writes are committed, and the answer is recorded. A 4xx rolls the writes back, but the answer is
// recorded, because it is final. A 5xx rolls the writes back and is not recorded: the key is free,
// and a repetition executes. The statuses 401, 408, 409, 423, 425 and 429 ask for the same request
// again, and are treated like 5xx.
//
// # Operations
//
// [Operate] returns a handler that runs an operation.Definition, which is work of several steps. It
// answers 202 if the operation takes longer than OperationConfig.Patience.
// [OperationHandler.Status] then reports the progress.
//
// # What a handler may not do
//
// The answer is buffered until the COMMIT. So Flush and Hijack fail, and informational responses
// (1xx) are not sent. An answer with a trailer, or larger than Config.MaxResponse, is rejected, and
// nothing is committed. The writer and the request body cannot be used once the handler has
// returned.
//
// As with idem.Do, a handler may run again after a serialization failure, with a fresh request.
// [Middleware.Handle] recognizes a serialization failure by the error that the handler returns.
// [Middleware.Wrap] gets no error from its handler: a handler that answers 5xx is not run again.
package idemhttp
