package inbox

import "time"

// State is the outcome of a message.
type State string

const (
	// Done says that this delivery had its effect, which is committed. Acknowledge it.
	Done State = "done"
	// Duplicate says that an earlier delivery had its effect. Acknowledge it.
	Duplicate State = "duplicate"
	// Retry says that it has no effect yet. Deliver it again, at RetryAt or later.
	Retry State = "retry"
	// Dead says that it is a dead letter: it had as many attempts as it may have, or none would help, because its id belongs to
	// another payload, or is none. Acknowledge it, or tell the broker that it is not to be delivered again.
	Dead State = "dead"
)

// Outcome is the outcome of one message. It is right also if an error is returned beside it.
type Outcome struct {
	State   State
	RetryAt time.Time // of Retry
	Err     error     // why, of Retry and Dead
}
