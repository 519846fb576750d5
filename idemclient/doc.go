// Package idemclient sends a write under one Idempotency-Key until it has an answer, and retries within limits.
//
// A client that gets no answer to a write does not know whether it happened. It may send the write again if the server
// knows the key of the first request. [Transport], an http.RoundTripper around another, does this for a call: it makes a
// key before the first attempt, and sends every attempt with that key and the same body. It works with any server that
// honours the header, and needs nothing but the standard library.
//
//	client := idemclient.NewClient(nil)
//	resp, err := client.Post(url, "application/json", bytes.NewReader(order))
//
// # Keeping the key
//
// A call can fail, and a program can end before it has an answer. A program that asks again must use the same key: with another
// key it is another write. So make the key, store it with the order before the order is first sent, and send it with the
// stored key. The example of the package does this across two runs of a program.
//
//	key, made := idemclient.NewKey(), time.Now() // store both with the order, then:
//	ctx = idemclient.WithKeyMadeAt(ctx, key, made)
//
//	// after a failure or a restart, for an order without an answer:
//	ctx = idemclient.WithKeySentBefore(ctx, key, made)
//
// A call without a key of the caller's gets a random one. If that call fails, [Error.FullKey] returns its key, also for a
// response whose body breaks off while it is read. A failure can also be a response, such as a 503 when the attempts are
// used up: [LastAttempt] and [Attempt.FullKey] lead from there to the key. Errors, attempts and contexts show a key
// abridged or not at all when they are printed or logged. The request of a response has it in its header.
//
// Two errors of http.Client itself do not lead to the key: its Timeout may replace the error of the call by a text, and a
// redirect with a Location that cannot be parsed is no error of the call. Give the context a deadline instead of setting
// Timeout; in both cases Observe is told of every attempt, with its key.
//
// # The same request
//
// A key stands for one request. A server may refuse a key that comes with another request; idemhttp does, with 422. By
// default idemhttp takes two requests for the same if they have the same method, path, query, media type and body, where
// JSON counts by what it says. The other fields of the header do not count. Other servers compare less or more. So store
// the body, or what it is made of: one that is made anew must not have the time of the attempt, or a new random boundary,
// in it. What should happen twice, such as a second order of the same goods, needs a second key.
//
// # What is guaranteed
//
//   - One key for a call: for all of its attempts, and for redirects that keep its method on the same host. It is the
//     caller's ([WithKey], or the header), or a random UUID. No other call gets it, and a used key is never replaced.
//   - Every attempt has the same body, header, length and trailers, except for the number of the attempt. The caller's
//     request is not modified.
//   - A method that is not idempotent is sent again only with a key.
//   - Retries are at most a tenth of the requests and a burst of ten, for all who share the Transport. 200 calls to a server
//     that is down make at most 240 requests.
//   - If the last attempt had a response, the caller gets it with its header and its body as the server sent them, and it
//     streams. Otherwise the caller gets an [*Error] with the cause in it.
//   - The response of an attempt that is followed by another is drained and closed, within bounds.
//   - Nothing is sent with a key that is older than Retention.
//   - No error and no [Attempt] shows a key in full, unless it is asked by FullKey.
//
// # What is retried
//
// Responses: 500, 502, 503, 504, 429, 425, and a 409 that says that the first request is still in progress, by a
// Retry-After or by a problem document (RFC 9457) with a member "retryable" of true. No other status is retried. A
// "retryable" of false is final with any status.
//
// Errors: those of the network, and an attempt that took longer than its timeout. Not the end of the caller's context, a
// certificate or a handshake that was refused, and not what net/http refuses to send: the next attempt would end in the
// same way. A redirect that goes round in circles is refused by http.Client, above this package.
//
// # Replays
//
// A server marks an answer that it has recorded earlier by a header of the response: Idempotency-Replayed: true (idemhttp,
// by default) or Idempotent-Replayed: true (Stripe). The caller finds it in the response that it gets. A first answer has
// none. A caller sees the mark on a good answer whenever an earlier attempt was executed and its answer was lost: to the
// caller it is the answer. An answer that is so marked is never retried, with any status: it will not change. A server
// that uses another name is not understood, and a recorded 500 of it is asked for until a limit is reached.
//
// # Repeated attempts
//
// The second and every later attempt with a key has the header Idempotency-Attempt with its number: 2, 3, and so on. The
// first has none. With [WithKeySentBefore] the first attempt of the call has the number 2. It is a hint for the server,
// which may look for a recorded answer first; no answer depends on it. The number is counted from each redirect anew.
//
// # Redirects
//
// http.Client follows redirects. A redirect by 307 or 308 repeats the method and the body, and belongs to the same call. It
// keeps the key on the same host, with any port, and on its subdomains. Case does not matter in names, nor whether an
// internationalized name is written in Unicode or in Punycode. A request to any other host has neither the key nor the number of the attempt,
// also if the caller has written the key into the header, and no new key is made. It is then an ordinary request: a POST is
// sent once, and a program that repeats the call may have it executed again on that host, which does not know the key. Nor does a
// later redirect bring the key back. [Transport.KeyOnRedirect] decides otherwise. A key that CheckRedirect writes into the
// header for another host, other than that of the call, is sent.
//
// A redirect by 301, 302 or 303 turns a write into a GET. That has no key, on any host. If it fails, its error leads to the
// key of the write.
//
// # Pauses
//
// Before retry n, counted from 0, is a pause of rand(0, min(MaxBackoff, MinBackoff·2ⁿ)). A Retry-After, in seconds or as a
// date, is added to it, cut to MaxRetryAfter. A pause that would outlast the deadline of the context is not begun: the
// caller has the last answer at once.
//
// # The retry budget
//
// All calls on one Transport share a bucket of ten tokens, which is full at first. Every request adds a tenth of a token,
// and every retry takes one. While some requests fail, there are tokens for their retries. When all fail, one in ten
// requests is retried; the others end at their first failure, with [StopBudget] or [ErrBudgetExhausted]. All who call one
// service should share one Transport.
//
// net/http has retries of its own: it repeats a request with an Idempotency-Key and a GetBody if a connection that it has
// used before breaks. This package gives it no GetBody with a key, so that net/http does not repeat a write that has a body.
// It cannot be kept from repeating one without a body; each of these is counted in Attempt.Sent, and takes a token.
//
// # Time
//
// The end of the context ends everything. MaxElapsed limits when an attempt may begin. AttemptTimeout ends one attempt: it
// covers the sending of the request and the header of the response, not the body that the caller reads. The context of the
// last attempt lives until that body is closed. All three are measured by the monotonic clock.
//
// The age of a key counts from when it was made: by this package, by WithKey, or as [WithKeyMadeAt] says. It is the greater
// of what the monotonic clock and the wall clock say, because the former stands still while a machine sleeps and the latter
// can be set. The clock of the server plays no part.
//
// # Bodies
//
// A body with GetBody, as http.NewRequest sets it for bytes and strings, is not copied. One without is read into memory
// first, up to MaxBuffer; a larger one is sent once, as it comes, and not again. Before a body is sent again because of an
// error it is read through: one that is broken, or not as long as it says, would fail again.
package idemclient
