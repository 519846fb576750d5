// Package idemclient sends a write until there is an answer to it, under one Idempotency-Key, and stops before its
// insistence becomes a burden.
//
// A client that gets no answer to a write cannot know whether it happened. It may ask again if the server recognises the
// question, and for that the key has to be made before the first attempt, and kept. This is easy to get wrong in quiet
// ways: a key that is made anew for the retry, or kept for the next order; a retry whose body was used up by the first
// attempt; a retry for every failure of a server that fails because of retries.
//
//	client := idemclient.NewClient(nil)
//	resp, err := client.Post(url, "application/json", bytes.NewReader(order))
//
// It works with any server that honours the header, imports nothing but the standard library, and is a [Transport], an
// http.RoundTripper around another.
//
// # What is guaranteed
//
//   - One key for a logical call: for all of its attempts, and through redirects that keep its method. It is the caller's
//     ([WithKey], or the header), or a random UUID. It never reaches another call, and a used key is never replaced.
//   - Every attempt carries the same body, header, length and trailers. The caller's request is not modified.
//   - A method that is not idempotent is sent again only with a key.
//   - Retries are at most a tenth of the requests and a burst of ten, for all who share the Transport. 200 calls to a server
//     that is down make at most 240 requests.
//   - If the last attempt had a response, it is the caller's, with its header and its body as the server sent them, and it
//     streams. Otherwise there is an [*Error] with the cause in it.
//   - The response of an attempt that was given up is drained and closed, within bounds.
//   - Nothing is sent with a key that is older than the server remembers.
//   - No error and no [Attempt] tells a key in full.
//
// # What is retried
//
// Answers: 500, 502, 503, 504, 429, 425, and a 409 that says that the first request is still in progress: by a Retry-After,
// or a problem document (RFC 9457) with a member "retryable" of true. No other status is, whatever it says of itself. A
// "retryable" of false is final with any status, and so is an answer that is marked as a replay, by Idempotency-Replayed:
// true: it was recorded, and will not change.
//
// Errors: those of the network, and an attempt that took longer than its timeout. Not the end of the caller's context, a
// certificate or a handshake that was refused, and not what net/http refuses to send: the next attempt would end in the
// same way. A redirect that goes round in circles is http.Client's to refuse, and is not seen here.
//
// # Pauses
//
// Before retry n, counted from 0, is a pause of rand(0, min(MaxBackoff, MinBackoff·2ⁿ)). A Retry-After, in seconds or as a
// date, is added to it, cut to MaxRetryAfter. A pause that would outlast the deadline of the context is not begun: the
// caller has the last answer at once.
//
// # The budget
//
// Every request pays a tenth of a token into a bucket that holds ten, and begins full; every retry takes one out. While
// some requests fail, their retries find tokens; when all of them fail, nine in ten are told so at the first failure, with
// [StopBudget] or [ErrBudgetExhausted]. One Transport should be shared by all who call the same service.
//
// net/http has retries of its own: it repeats a request with an Idempotency-Key and a GetBody if a connection that it has
// used before breaks. Here it is not given a GetBody with a key, so that a write with a body is sent by this package or not
// at all. For requests without a body it cannot be stopped; each of these is counted in Attempt.Sent, and takes a token.
//
// # Time
//
// Of the context, MaxElapsed and AttemptTimeout, the context ends everything, MaxElapsed ends the making of attempts, and
// AttemptTimeout ends one attempt. The last covers the sending of the request and the header of the response, not the body
// that the caller reads: its context lives until that is closed. All three are measured by the monotonic clock.
//
// The age of a key counts from when it was made: by this package, by WithKey, or as [WithKeyMadeAt] says. It is the greater
// of what the monotonic clock and the wall clock say, because the former stands still while a machine sleeps and the latter
// can be set. The clock of the server plays no part.
//
// # Bodies
//
// A body with GetBody, as http.NewRequest sets it for bytes and strings, costs nothing. One without is read into memory
// first, up to MaxBuffer; above that it is sent once, as it comes, and not again. Before a body is sent again because of an
// error it is read through, so that one that is broken, or not as long as it says, is not sent to fail again.
package idemclient
