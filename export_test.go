package idem

import "time"

// WithLimits shortens the bounds that are no options.
func WithLimits(acquire, commit, resolve time.Duration) Option {
	return func(s *settings) {
		s.limits.txn.Acquire, s.limits.txn.Commit, s.limits.resolve = acquire, commit, resolve
	}
}

// WithLock makes a call take another advisory lock than that of its key, or none if lock returns nil.
func WithLock(lock func(scope, key string) *int64) Option {
	return func(s *settings) { s.lock = lock }
}

// RetryAfterWait is what a call that has waited in vain for so long suggests.
func RetryAfterWait(wait time.Duration) time.Duration {
	w := &waiting{wait: wait}
	return w.inProgress().(*InProgressError).RetryAfter
}
