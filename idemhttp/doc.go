// Package idemhttp puts an HTTP handler under the guarantee of package idem: a request with an Idempotency-Key has its
// effect once, and every repetition of it is given the same answer.
//
//	middleware, err := idemhttp.New(pool, idemhttp.Config{Scope: scope})
//	...
//	mux.Handle("POST /orders", middleware.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		tx := idemhttp.Tx(r.Context())
//		// the write, on tx, and the answer, on w
//	})))
//
// [Middleware.Wrap] is ordinary middleware, and the handler finds its transaction with [Tx]. [Middleware.Handle] passes the
// transaction as an argument and takes an error as the answer. Either way the handler runs inside one transaction, what it
// answers is recorded in it, and nothing is sent before it is committed: a client never sees a success that was undone.
//
// # What happens to a request
//
//   - A method that is not in Config.Methods passes through untouched.
//   - Config.Scope says who is calling and which operation. There is no default, because a scope that callers share leaks
//     the answer of one to the other.
//   - The key is read from the header, and the whole body is read, up to Config.MaxBody.
//   - The fingerprint of the request tells whether a key comes with the request that it belongs to.
//   - [idem.Do] executes the handler, or finds the answer that is recorded.
//   - What was committed is sent. A repetition is marked by the header Idempotency-Replayed.
//
// What is not answered by the handler is answered by a [Problem], in the form of RFC 9457. Whose fault an error is depends on
// where it arose. What a handler returns, other than a *Problem, is a 500, or a 503 if it will pass, and is logged.
//
// # Time limits
//
// Give every request a deadline, or a database that says nothing holds it for ever. That is a few lines of middleware around
// context.WithTimeout. http.TimeoutHandler will not do: it answers while the handler goes on, and may say that something
// failed which is then committed.
//
// Config.Wait should be shorter than that deadline. http.Server.WriteTimeout, and the timeout of a proxy in front, should be
// ten seconds longer than it: for so long a COMMIT that is under way is followed up. A client that closes its half of the
// connection counts as one that has gone: before COMMIT everything is rolled back, and it can read a 503.
//
// # Which answers are remembered
//
// It depends on its status, and Config.Decide may say otherwise. Below 400 the writes are committed. 4xx undoes the writes
// and is remembered all the same: it is final. 5xx undoes the writes and is not remembered: the key is free, and a repetition
// executes. So do 401, 408, 409, 423, 425 and 429, by which a server asks for the same request again.
//
// # Operations
//
// [Operate] makes a handler of work of several steps, an operation.Definition. It answers 202 if that takes long, and
// [OperationHandler.Status] tells how far it is.
//
// # What a handler may not do
//
// The answer is buffered until COMMIT. So Flush and Hijack fail, and informational responses (1xx) are not sent. An answer with
// a trailer, or above Config.MaxResponse, is refused with nothing committed. The writer and the body of the request are of no
// use once the handler has returned. As with idem.Do, the handler may be run again, with a fresh request, after a
// serialization failure: [Middleware.Handle] tells it apart by the error that is returned, while a handler under
// [Middleware.Wrap] that answers with 5xx has simply failed.
package idemhttp
