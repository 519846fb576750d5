package inbox

// Message is what a broker has delivered.
type Message struct {
	// Source is where it comes from: a topic, a stream, a provider. The ID of a message is one of its source.
	Source string
	// ID is the producer's name for the message, the same in each delivery.
	ID string
	// Key is what it is about, for who wants the messages of one key in order.
	Key     string
	Payload []byte
}
