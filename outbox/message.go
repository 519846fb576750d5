package outbox

import "time"

// Message is something that has happened, to be told to others.
type Message struct {
	// ID is the message's for ever: a consumer knows it again by it. Add makes one for a message that has none. It is a UUID.
	ID string
	// Topic is where it goes, in the broker's own terms.
	Topic string
	// Key is what it is about: messages of one topic and key leave in the order in which they were added. Messages without a
	// key have no order.
	Key string
	// Type says what has happened.
	Type    string
	Payload []byte
	Headers map[string]string

	// NotBefore delays the message: it is not published before that moment, by the clock of the database, and leaves then as if it had
	// been added when a relay finds it due: moments behind NotBefore where one runs. So it holds back no message of its key meanwhile, and what is
	// added while no relay runs leaves before it. Delayed messages of a key that are due leave in the order of NotBefore. The zero Time, and one that is past, delay nothing. A Publisher is not told of it.
	NotBefore time.Time
}
