// Package idemclient sends a write with one Idempotency-Key until it has an answer, and limits the
// retries.
//
// A client that gets no answer to a write does not know whether the write happened. It may send the
// write again if the server knows the key of the first request. [Transport] is an http.RoundTripper
// around another one that does this: it makes a key before the first attempt, and sends every
// attempt with that key and the same body. It works with any server that supports the header. It
// needs only the standard library.
//
//	client := idemclient.NewClient(nil)
//	resp, err := client.Post(url, "application/json", bytes.NewReader(order))
//
// # Keeping the key
//
// A call can fail, and a program can end before it has an answer. A program that sends the write
// again must use the same key, because a write with another key is another write. So make the key,
// store it with the order before the order is first sent, and send the order with the stored key.
// The example of the package does this across two runs of a program.
//
//	key, made := idemclient.NewKey(), time.Now() // store both with the order, then:
//	ctx = idemclient.WithKeyMadeAt(ctx, key, made)
//
//	// after a failure or a restart, for an order without an answer:
//	ctx = idemclient.WithKeySentBefore(ctx, key, made)
//
// A call without a key from the caller gets a random key. If the call fails, [Error.FullKey]
// returns its key. This includes a response whose body breaks off while it is read. A failure can
// also be a response, such as a 503 after the last attempt. Then use [LastAttempt] and
// [Attempt.FullKey]. The request of a response has the key in its header. Errors, attempts and
// contexts show an abridged key, or none, when they are printed or logged.
//
// Two errors of http.Client itself do not lead to the key. Its Timeout may replace the error of the
// call with a text, and a redirect with an invalid Location is not an error of the call. Use a
// deadline of the context instead of Timeout. In both cases Observe gets every attempt, with its
// key.
//
// # The same request
//
// A key stands for one request. A server may reject a key that comes with another request; idemhttp
// does so with 422. By default idemhttp treats two requests as the same if they have the same
// method, path, query, media type and body. JSON bodies are compared by value. Other header fields
// do not count. Other servers compare less or more. So store the body, or the data that it is made
// from. A body that is made again must not contain the time of the attempt or a new random
// boundary. Something that should happen twice, such as a second order of the same goods, needs a
// second key.
//
// # Guarantees
//
//   - A call has one key, for all of its attempts, and for redirects that keep its method on the
//     same host. It is the caller's key ([WithKey], or the header), or a random UUID. No other call
//     gets it, and it is never replaced.
//   - Every attempt has the same body, header, length and trailers, except for the number of the
//     attempt. The caller's request is not modified.
//   - A method that is not idempotent is sent again only with a key.
//   - All users of a Transport together make at most one retry for ten requests, plus a burst of
//     ten. 200 calls to a server that is down make at most 240 requests.
//   - If the last attempt had a response, the caller gets it with the header and the body that the
//     server sent, as a stream. Otherwise the caller gets an [*Error] with the cause.
//   - The response of an attempt that is followed by another attempt is drained and closed, within
//     limits.
//   - Nothing is sent with a key that is older than Retention.
//   - No error and no [Attempt] shows a key in full, except through FullKey.
//
// # What is retried
//
// Responses: 500, 502, 503, 504, 429, 425, and a 409 that says that the first request is still in
// progress. It says so with a Retry-After, or with a problem document (RFC 9457) whose member
// "retryable" is true. No other status is retried. With "retryable": false, no status is retried.
//
// Errors: network errors, and an attempt that exceeded its timeout. An error is not retried if the
// next attempt would end in the same way: the end of the caller's context, a rejected certificate
// or handshake, and a request that net/http refuses to send. A redirect loop is detected by
// http.Client, above this package.
//
// # Replays
//
// A server marks an answer that it has recorded earlier with a header field: Idempotency-Replayed:
// true (the default of idemhttp) or Idempotent-Replayed: true (Stripe). The caller finds the field
// in its response. A first answer has none. The caller gets a replay whenever an earlier attempt
// was executed and its answer was lost; it is the answer of the call. A replay is never retried,
// whatever its status, because it will not change. The mark of a server that uses another field is
// not recognized: a recorded 500 of such a server is retried until a limit is reached.
//
// # Repeated attempts
//
// The second and each later attempt with a key has its number in the header field
// Idempotency-Attempt: 2, 3, and so on. The first attempt has none. With [WithKeySentBefore] the
// first attempt of the call has the number 2. The field is a hint for the server, which may look
// for a recorded answer first. No answer depends on it. The count starts again after each redirect.
//
// # Redirects
//
// http.Client follows redirects. A redirect with 307 or 308 repeats the method and the body, and
// belongs to the same call. It keeps the key on the same host, with any port, and on subdomains of
// the host. Host names are compared without regard to case, and in Punycode.
//
// A request to any other host gets neither the key nor the number of the attempt, even if the
// caller has written the key into the header. No new key is made. It is then an ordinary request: a
// POST is sent once. A program that repeats the call may cause another execution on that host,
// which does not know the key. A later redirect does not bring the key back.
// [Transport.KeyOnRedirect] can change this rule. If CheckRedirect writes a different key into the
// header for another host, that key is sent.
//
// A redirect with 301, 302 or 303 turns a write into a GET. The GET has no key, on any host. If it
// fails, its error leads to the key of the write.
//
// # Backoff
//
// The pause before retry n, counted from 0, is rand(0, min(MaxBackoff, MinBackoff·2ⁿ)). A
// Retry-After, in seconds or as a date, is limited to MaxRetryAfter and added. If the pause would
// exceed the deadline of the context, the caller gets the last answer at once.
//
// # The retry budget
//
// All calls on one Transport share a bucket of ten tokens, which is full at first. Every request
// adds a tenth of a token, and every retry takes one token. While only some requests fail, there
// are tokens for their retries. When all requests fail, one in ten is retried. The others end at
// their first failure, with [StopBudget] or [ErrBudgetExhausted]. All clients of one service should
// share one Transport.
//
// net/http has retries of its own. It repeats a request that has an Idempotency-Key and a GetBody
// if a reused connection breaks. This package removes GetBody from a request with a key, so that
// net/http does not repeat a write that has a body. It cannot keep net/http from repeating a
// request without a body. Attempt.Sent counts these repetitions, and each takes a token.
//
// # Time
//
// The end of the context ends everything. MaxElapsed limits when an attempt may begin.
// AttemptTimeout limits one attempt: sending the request and receiving the header of the response,
// but not the body that the caller reads. The context of the last attempt lives until that body is
// closed. All three are measured with the monotonic clock.
//
// The age of a key counts from the time at which it was made: by this package, by WithKey, or as
// passed to [WithKeyMadeAt]. It is the larger of the ages by the monotonic clock and by the wall
// clock, because the monotonic clock stands still while a machine sleeps, and the wall clock can be
// set. The clock of the server is not used.
//
// # Bodies
//
// A body with GetBody, as http.NewRequest sets it for bytes and strings, is not copied. A body
// without GetBody is first read into memory, up to MaxBuffer. A larger body is sent once, as a
// stream, and not again. Before a body is sent again because of an error, it is read through. If it
// is broken or does not have its declared length, it is not sent again, because the attempt would
// fail again.
package idemclient
