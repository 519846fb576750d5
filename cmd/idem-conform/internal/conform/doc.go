// Package conform tests from outside whether an HTTP server follows the idempotency-key rules of a
// profile.
//
// A run sends one request many times, under keys that it generates, and compares the answers. It
// cannot observe executions. If a repetition gets the answer of the first request, the run
// concludes that it was replayed in two cases: two executions of the request have different
// answers, or the server marks replays. In all other cases a rule that depends on this conclusion
// has the verdict "not tried". A rule that was not tried is never reported as kept.
package conform
