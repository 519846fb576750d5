package idem

import "time"

// WithLimits shortens the bounds that are no options.
func WithLimits(acquire, commit, resolve time.Duration) Option {
	return func(o *options) { o.limits.acquire, o.limits.commit, o.limits.resolve = acquire, commit, resolve }
}

// RetryAfterWait is what a call that has waited in vain for so long suggests.
func RetryAfterWait(wait time.Duration) time.Duration {
	busy := (&call{options: options{wait: wait}}).inProgress().(*InProgressError)
	return busy.RetryAfter
}
