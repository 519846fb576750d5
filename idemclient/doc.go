// Package idemclient sends a write with one Idempotency-Key until it has an answer, and limits the
// retries.
//
// A client that gets no answer to a write does not know whether the write happened. It can safely
// send the write again if both requests have the same key, and the server executes only one request
// per key. [Transport] does this. It wraps another http.RoundTripper, makes a key before the first
// attempt, and sends every attempt with this key and the same body. It works with any server that
// supports the header Idempotency-Key. The package needs only the standard library.
//
//	client := idemclient.NewClient(nil)
//	resp, err := client.Post(url, "application/json", bytes.NewReader(order))
//
// # Keeping the key
//
// A call can fail, and a program can end before it has an answer. A program that sends the write
// again must use the same key, because a write with another key is another write. So make the key
// yourself. Store the key with the data of the write, here an order, before the order is first
// sent, and send the order with the stored key. The example of the package does this in two runs of
// a program.
//
//	key, made := idemclient.NewKey(), time.Now() // store both with the order, then:
//	ctx = idemclient.WithKeyMadeAt(ctx, key, made)
//
//	// after a failure or a restart, for an order without an answer:
//	ctx = idemclient.WithKeySentBefore(ctx, key, made)
//
// A call without a key from the caller gets a random key. If the call fails with an [*Error],
// [Error.FullKey] returns the key. Reading a response body that breaks off returns an *Error, too.
// If the call ends with a response such as 503, use [LastAttempt] and [Attempt.FullKey]. The header
// of resp.Request also has the key. Errors, attempts and contexts show an abridged key, or no key,
// when they are printed or logged.
//
// Two errors of http.Client itself do not contain the key. When http.Client.Timeout ends a call,
// http.Client may replace the *Error by an error without the key; use a deadline of the context
// instead. When a redirect has an invalid Location, http.Client makes the error. In both cases
// Transport.Observe gets every attempt, with its key.
//
// # The same request
//
// A key stands for one request. A server may reject a key that comes with a different request;
// idemhttp answers such a request with 422. By default idemhttp treats two requests as the same if
// they have the same method, path, query, media type and body. JSON bodies are compared by value.
// Other header fields do not count. Other servers compare less or more. So store the body with the
// key, or the data from which the body is made. A body that is made again must not contain the time
// of the attempt or a new random boundary. Something that should happen twice, such as a second
// order of the same goods, needs a second key.
//
// # Guarantees
//
//   - A call has one key, for all of its attempts, and for redirects that keep its method on the
//     same host. The key is the caller's key ([WithKey], or the header), or a random UUID. No other
//     call gets the UUID, and the key of a call is never replaced.
//   - Every attempt has the same body, header, length and trailers, except for the header field
//     with the number of the attempt. The caller's request is not modified.
//   - A method that is not idempotent is sent again only with a key.
//   - All users of a Transport together make at most one retry for ten requests, plus a burst of
//     ten. 200 calls to a server that is down make about 30 retries, and at most 240 requests in
//     all.
//   - If the last attempt had a response, the caller gets it with the header and the body that the
//     server sent, as a stream. Otherwise the caller gets an [*Error] with the cause.
//   - Before another attempt, the response of the last attempt is drained, up to a limit, and
//     closed.
//   - Nothing is sent with a key that is older than Retention.
//   - No error and no [Attempt] shows a key in full, except through FullKey.
//
// # What is retried
//
// Responses: 500, 502, 503, 504, 429, 425, and a 409 that says that the first request is still in
// progress. A 409 says so with a Retry-After, or with a problem document (RFC 9457) whose member
// "retryable" is true. No other status is retried. A response whose problem document has
// "retryable": false is never retried.
//
// Errors: network errors, and an attempt that exceeded its timeout. An error is not retried if the
// next attempt would end in the same way. Such errors are the end of the caller's context, a
// rejected certificate or handshake, and a request that net/http refuses to send. http.Client, not
// this package, detects a redirect loop.
//
// # Replays
//
// A server marks an answer that it has recorded earlier with a header field: Idempotency-Replayed:
// true (the default of idemhttp) or Idempotent-Replayed: true (Stripe). The caller finds the field
// in its response. The first answer of a server does not have the field. If an attempt was executed
// and its answer was lost, the caller gets the replay as the answer of the call. A replay is never
// retried, whatever its status, because the recorded answer will not change. A server may mark
// replays with another field, which this package does not recognize. A recorded 500 of such a
// server is retried until a limit is reached.
//
// # Repeated attempts
//
// The second and each later attempt with a key has its number in the header field
// Idempotency-Attempt: 2, 3, and so on. The first attempt does not have the field. With
// [WithKeySentBefore] the first attempt of the call has the number 2. The field is a hint: the
// server may look for a recorded answer first. The answer does not depend on the hint. The count
// starts again after each redirect.
//
// # Redirects
//
// http.Client follows redirects. A redirect with 307 or 308 repeats the method and the body, and
// belongs to the same call. The redirected request keeps the key on the same host, with any port,
// and on subdomains of the host. Host names are compared without regard to case, and in Punycode.
//
// A request to any other host gets neither the key nor the number of the attempt, even if the
// caller has written the key into the header. No new key is made for it, so a POST to the other
// host is sent only once. If the program repeats the call, the other host may execute the write
// again, because it does not know the key. A later redirect does not bring the key back.
// [Transport.KeyOnRedirect] can allow other hosts. If http.Client.CheckRedirect writes a different
// key into the header, the different key is sent.
//
// A redirect with 301, 302 or 303 turns a write into a GET. The GET has no key, on any host. If the
// GET fails, FullKey of its error returns the key of the write.
//
// # Backoff
//
// The pause before retry n, counted from 0, is rand(0, min(MaxBackoff, MinBackoff·2ⁿ)). The time of
// a Retry-After, in seconds or as a date, is limited to MaxRetryAfter and added to the pause. If
// the pause would exceed the deadline of the context, the caller gets the last answer at once.
//
// # The retry budget
//
// All calls on one Transport share a bucket of ten tokens, which is full at first. Every request
// adds a tenth of a token, and its retries add nothing. Every retry takes one token. As long as
// only a few requests fail, there are enough tokens for their retries. When all requests fail, one
// in ten is retried. The other calls end at their first failure, with [StopBudget] or
// [ErrBudgetExhausted]. All clients of one service should share one Transport.
//
// net/http has retries of its own. It repeats a request that has an Idempotency-Key and a GetBody
// if a reused connection breaks. This package removes GetBody from a request with a key, so that
// net/http does not repeat a write that has a body. The package cannot prevent net/http from
// repeating a request without a body. Attempt.Sent counts these repetitions, and each takes a
// token.
//
// # Time
//
// The end of the caller's context ends the call. MaxElapsed limits when an attempt may begin.
// AttemptTimeout limits one attempt: sending the request and receiving the header of the response,
// but not the body that the caller reads. The context of the last attempt lives until the caller
// closes the body. Deadlines of the context, MaxElapsed and AttemptTimeout are measured with the
// monotonic clock.
//
// The age of a key counts from the time at which this package made the key, from the call of
// WithKey, or from the time passed to [WithKeyMadeAt]. The age is measured with the monotonic clock
// and with the wall clock, and the larger value counts. The reason is that the monotonic clock
// stands still while a machine sleeps, and that the wall clock can be set. The clock of the server
// is not used.
//
// # Bodies
//
// A body with GetBody, as http.NewRequest sets it for bytes and strings, is not copied. A body
// without GetBody is first read into memory, up to MaxBuffer. A larger body is sent once, as a
// stream, and not again. After an attempt that failed with an error, the Transport checks the body:
// it opens the body again and reads it to the end. A body that cannot be read, or does not have its
// declared length, is not sent again, because the next attempt would fail too.
package idemclient
