package promises_test

import (
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
)

var internals = bridge.Get[idem.Option, idem.Result]()

// withLimits shortens limits that have no option.
func withLimits(acquire, commit, resolve time.Duration) idem.Option {
	return internals.WithLimits(acquire, commit, resolve)
}

// withLock makes a call take the advisory lock that lock returns, or none if lock returns nil.
func withLock(lock func(scope, key string) *int64) idem.Option { return internals.WithLock(lock) }
