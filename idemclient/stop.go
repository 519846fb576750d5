package idemclient

import "cmp"

// Stop is the reason why a call made no further attempt. It is empty if there was a further
// attempt.
type Stop string

// The reasons to stop.
const (
	StopFinal      Stop = "final"       // the answer is final
	StopPermanent  Stop = "permanent"   // the next attempt would fail in the same way
	StopUnsafe     Stop = "unsafe"      // the method is not idempotent, and there is no key
	StopBody       Stop = "body"        // the body cannot be read or sent again
	StopBroken     Stop = "broken"      // the response broke off while the caller read it
	StopEnded      Stop = "ended"       // the caller's context ended
	StopDeadline   Stop = "deadline"    // the caller's context would end before the next attempt
	StopAttempts   Stop = "attempts"    // MaxAttempts was reached
	StopElapsed    Stop = "elapsed"     // MaxElapsed was reached
	StopBudget     Stop = "budget"      // the retry budget is used up
	StopKeyTooOld  Stop = "key_too_old" // the key is older than Retention
	StopInvalidKey Stop = "invalid_key" // the key cannot be sent
)

// sentinels has, for a Stop, the sentinel error that an *Error with this Stop wraps.
var sentinels = map[Stop]error{StopKeyTooOld: ErrKeyTooOld, StopBudget: ErrBudgetExhausted, StopInvalidKey: ErrInvalidKey}

var stopTexts = map[Stop]string{
	StopPermanent: "permanent error, not retried",
	StopUnsafe:    "not safe to repeat without a key",
	StopBody:      "the body cannot be sent again",
	StopBroken:    "the response broke off",
	StopEnded:     "the context ended",
	StopDeadline:  "no time left for another attempt",
}

// text returns the reason as a phrase for an error text.
func (s Stop) text() string {
	if err := sentinels[s]; err != nil {
		return err.Error()
	}
	return cmp.Or(stopTexts[s], "gave up")
}
