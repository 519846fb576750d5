package inbox

import "time"

// WithLimits shortens what a call waits on its own account.
func WithLimits(patience, search, resolve time.Duration) Option {
	return func(s *settings) { s.limits.patience, s.limits.search, s.limits.resolve = patience, search, resolve }
}

// WithCommitLimit shortens how long a call waits for a COMMIT after the end of its context.
func WithCommitLimit(d time.Duration) Option {
	return func(s *settings) { s.limits.txn.Commit = d }
}
