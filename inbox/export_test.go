package inbox

import "time"

// WithLimits shortens how long a call waits for locks and COMMITs.
func WithLimits(lockWait, divide, resolve time.Duration) Option {
	return func(s *settings) { s.limits.lockWait, s.limits.divide, s.limits.resolve = lockWait, divide, resolve }
}

// WithTurn shortens how long a message waits whose last attempt has no recorded end.
func WithTurn(d time.Duration) Option {
	return func(s *settings) { s.limits.turn = d }
}
