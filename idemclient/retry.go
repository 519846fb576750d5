package idemclient

import "time"

// timeout is that of an attempt, if there can be another.
func (h *hop) timeout() time.Duration {
	if h.body.again == nil {
		return unlimited
	}
	return h.attemptTimeout()
}

// nextAttempt says why there is no further attempt, or how long to wait before it. The budget is asked last: what it gives is spent.
func (h *hop) nextAttempt(a *attempt) (time.Duration, Stop) {
	switch {
	case !a.transient() && a.err == nil:
		return 0, StopFinal
	case h.ended() != nil:
		return 0, StopEnded
	case !a.transient():
		return 0, StopPermanent
	case !h.repeat:
		return 0, StopUnsafe
	case h.attempts >= h.maxAttempts():
		return 0, StopAttempts
	case h.body.again == nil:
		return 0, StopBody
	}
	wait := h.pause(h.attempts-1, a.response)
	deadline, bounded := h.request.Context().Deadline()
	switch {
	case bounded && time.Until(deadline) <= wait:
		return 0, StopDeadline
	case time.Since(h.call.started)+wait > h.maxElapsed():
		return 0, StopElapsed
	case h.tooOld(wait):
		return 0, StopKeyTooOld
	case a.err != nil && !h.body.sound(), !h.rewind():
		return 0, StopBody
	case !h.budget.withdraw(h.retryBurst()):
		h.closeNextBody()
		return 0, StopBudget
	}
	return wait, ""
}

// tooOld reports whether the key will be too old to be sent when wait is over.
func (h *hop) tooOld(wait time.Duration) bool {
	return h.key.value != "" && h.key.age()+wait > h.retention()
}

// rewind opens the body for the next attempt.
func (h *hop) rewind() (done bool) {
	next, err := h.body.again()
	h.nextBody = next
	return err == nil
}

func (h *hop) closeNextBody() {
	if h.nextBody != nil {
		h.nextBody.Close()
	}
}
