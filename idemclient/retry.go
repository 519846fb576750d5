package idemclient

import "time"

// timeout returns the timeout of an attempt. An attempt has no timeout if the request cannot be
// sent again.
func (h *hop) timeout() time.Duration {
	if h.body.again == nil {
		return unlimited
	}
	return h.attemptTimeout()
}

// nextAttempt returns the pause before the next attempt, or the reason why there is no next
// attempt. The budget is checked last, because withdraw takes a token.
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

// tooOld reports whether the key will be older than Retention after the pause wait.
func (h *hop) tooOld(wait time.Duration) bool {
	return h.key.value != "" && h.key.age()+wait > h.retention()
}

// rewind opens the body for the next attempt. It returns false if the body cannot be opened.
func (h *hop) rewind() (ok bool) {
	next, err := h.body.again()
	h.nextBody = next
	return err == nil
}

func (h *hop) closeNextBody() {
	if h.nextBody != nil {
		h.nextBody.Close()
	}
}
