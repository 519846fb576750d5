package idem

import "time"

// WithLimits shortens the bounds that are no options.
func WithLimits(acquire, commit, resolve time.Duration) Option {
	return func(o *options) { o.limits.acquire, o.limits.commit, o.limits.resolve = acquire, commit, resolve }
}
