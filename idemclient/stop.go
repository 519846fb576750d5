package idemclient

// Stop is why an attempt was the last. It is empty if it was not.
type Stop string

// The reasons to stop.
const (
	StopFinal      Stop = "final"       // the answer is one that will not change
	StopPermanent  Stop = "permanent"   // the error is one that will not change
	StopUnsafe     Stop = "unsafe"      // a method that is not idempotent, and no key
	StopBody       Stop = "body"        // the body cannot be sent again, or not be read
	StopBroken     Stop = "broken"      // the response broke off while the caller read it
	StopEnded      Stop = "ended"       // the caller's context has ended
	StopDeadline   Stop = "deadline"    // the caller's context would end before the next attempt
	StopAttempts   Stop = "attempts"    // MaxAttempts
	StopElapsed    Stop = "elapsed"     // MaxElapsed
	StopBudget     Stop = "budget"      // the retry budget is exhausted
	StopKeyTooOld  Stop = "key_too_old" // Retention
	StopInvalidKey Stop = "invalid_key" // the key given by WithKey cannot be sent
)

// text is the reason as a clause of an error.
func (s Stop) text() string {
	switch s {
	case StopPermanent:
		return "an error that would be the same again"
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
