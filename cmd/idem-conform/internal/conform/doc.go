// Package conform tests from outside whether an HTTP server follows the idempotency-key rules of a
// profile.
//
// A run sends one request many times, under keys that it generates, and compares the answers. It
// cannot observe executions. It takes a repetition with the answer of the first request for a
// replay in two cases: two executions of the request have different answers, or the server marks
// replays. In all other cases a rule that depends on this has the verdict "not tried". A rule that
// was not tried is never reported as kept.
package conform
