package idemclient

// Stop is the reason why an attempt was the last one. It is empty if there was another attempt.
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

// text returns the reason as a phrase for an error text.
func (s Stop) text() string {
	switch s {
	case StopPermanent:
		return "permanent error, not retried"
	case StopUnsafe:
		return "not safe to repeat without a key"
	case StopBody:
		return "the body cannot be sent again"
	case StopBroken:
		return "the response broke off"
	case StopEnded:
		return "the context ended"
	case StopDeadline:
		return "no time left for another attempt"
	case StopBudget:
		return ErrBudgetExhausted.Error()
	case StopKeyTooOld:
		return ErrKeyTooOld.Error()
	case StopInvalidKey:
		return ErrInvalidKey.Error()
	}
	return "gave up"
}
