// Package conform finds out, from outside, whether a server keeps the rules of idempotency keys that a profile has.
//
// It sends one request again and again, under keys of its own, and compares answers. What was executed it cannot see: a repetition that has the answer of
// the first request is taken for a replay if two requests have different answers, or if the server marks replays. Otherwise a rule is not tried, which
// is never told as kept.
package conform
