package idemtest

import "context"

// undisturbed sends the first request without faults. It returns the answer, the counts before the
// request (base), and the counts after the request (one). ok is false if effects are missing
// although the answer was a success. undisturbed also sets u.varies if the answer differs from the
// answer in the first trial, or if the operation has made calls at the same time.
func (u *suite) undisturbed(s *subject) (first answer, base, one counts, ok bool) {
	u.Helper()
	base = u.count(s)
	first, _ = u.retry(s.request)
	one = u.count(s)
	u.varies = u.varies || first.text != u.first.text || u.steps && u.hasParallel(s)
	if n := one.effects - base.effects; first.outcome == done && n < u.effects {
		return first, base, one, u.breaks(u.missingEffect(base, one), "it was answered %s, and there were %d effects instead of %d",
			first.brief, n, u.effects)
	}
	return first, base, one, true
}

// missingEffect returns the promise that is broken if success was answered and an effect is
// missing. If the database has a record, the effect was lost or comes after the record. If it has
// no record, the answer came before the commit.
func (u *suite) missingEffect(base, now counts) promise {
	if now.before > base.before {
		return noEffectLost
	}
	return u.early
}

// hasParallel reports whether an operation has made calls at the same time. The answer may then
// depend on the order in which the calls return.
func (u *suite) hasParallel(s *subject) (has bool) {
	u.Helper()
	const begunTogether = `SELECT EXISTS (SELECT FROM idem.steps WHERE kind = 'call' AND due_at IS NOT NULL)`
	if err := s.pool.QueryRow(context.Background(), begunTogether).Scan(&has); err != nil {
		u.Fatalf("idemtest: look for calls at the same time: %v", err)
	}
	return has
}
