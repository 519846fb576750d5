package outbox

import "time"

// DeadLetter is a message that could not be published, after as many attempts as it may have.
type DeadLetter struct {
	Message
	Class    string // the kind of the last error: fit to be a label
	Reason   string // its text, cut off if it is long
	Attempts int
	SealedBy string // the key with which payload and headers are sealed, which Show opens; "" if they are plain

	AddedAt, DiedAt time.Time
}
