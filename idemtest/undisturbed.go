package idemtest

import "context"

// undisturbed makes the first request, with nothing in its way. The books are those before and behind it.
func (u *suite) undisturbed(s *subject) (first answer, base, one books, sound bool) {
	u.Helper()
	base = u.balance(s)
	first, _ = u.insist(s.request)
	one = u.balance(s)
	u.varies = u.varies || first.text != u.first.text || u.steps && u.hasParallel(s)
	if n := one.effects - base.effects; first.fate == done && n < u.effects {
		return first, base, one, u.breaks(u.late(base, one), "it was answered %s, and there were %d effects instead of %d", first.brief, n, u.effects)
	}
	return first, base, one, true
}

// late is what is broken by an effect that is missing when success has been answered.
func (u *suite) late(base, now books) promise {
	if now.before > base.before {
		return noEffectLost
	}
	return u.early
}

// hasParallel reports whether calls were made at the same time, so that what they return may depend on their order.
func (u *suite) hasParallel(s *subject) (has bool) {
	u.Helper()
	const begunTogether = `SELECT EXISTS (SELECT FROM idem.steps WHERE kind = 'call' AND due_at IS NOT NULL)`
	if err := s.pool.QueryRow(context.Background(), begunTogether).Scan(&has); err != nil {
		u.Fatalf("idemtest: look for calls at the same time: %v", err)
	}
	return has
}
