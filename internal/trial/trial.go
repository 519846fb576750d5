// Package trial lets tests set what is no option of package idem: there is nothing to choose, and tests shorten it.
package trial

import "time"

// Settings are those of a call.
type Settings interface {
	// SetLimits sets how long a call waits for a connection, and for the answer to COMMIT, and how long it asks for the outcome of one.
	SetLimits(acquire, commit, resolve time.Duration)
	// SetLock makes a call take another advisory lock than that of its key, or none if lock returns nil.
	SetLock(lock func(scope, key string) *int64)
}

// Option makes an idem.Option of a function. Package idem sets it.
var Option func(set func(Settings)) any
