package promises_test

import (
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/trial"
)

// withLimits shortens the bounds that are no options.
func withLimits(acquire, commit, resolve time.Duration) idem.Option {
	return trial.Option(func(s trial.Settings) { s.SetLimits(acquire, commit, resolve) }).(idem.Option)
}

// withLock makes a call take another advisory lock than that of its key, or none if lock returns nil.
func withLock(lock func(scope, key string) *int64) idem.Option {
	return trial.Option(func(s trial.Settings) { s.SetLock(lock) }).(idem.Option)
}
