package idemclient

import "time"

// timeout is that of an attempt, if there can be another.
func (h *trip) timeout() time.Duration {
	if !h.repeat || h.body.again == nil {
		return unlimited
	}
	return h.attemptTimeout()
}

// judge says why there is no further attempt, or how long to wait before it. The budget is asked last: what it gives is spent.
func (h *trip) judge(a *attempt) (time.Duration, Stop) {
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
		h.closeNext()
		return 0, StopBudget
	}
	return wait, ""
}

// tooOld reports whether the key will be too old to be sent when wait is over.
func (h *trip) tooOld(wait time.Duration) bool {
	return h.call.key.value != "" && h.call.key.age()+wait > h.retention()
}

// rewind opens the body for the next attempt.
func (h *trip) rewind() (done bool) {
	next, err := h.body.again()
	h.next = next
	return err == nil
}

func (h *trip) closeNext() {
	if h.next != nil {
		h.next.Close()
	}
}
