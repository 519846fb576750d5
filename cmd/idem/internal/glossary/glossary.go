// Package glossary has the terms of idem that a person on call meets first.
package glossary

// Link is the address of the full glossary.
const Link = "https://github.com/idem-go/idem/blob/main/docs/glossary.md"

// Term is a word and its meaning.
type Term struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
}

// Terms are the terms of the glossary, sorted by name.
var Terms = []Term{
	{"epoch", "A number of an operation. It grows whenever a process claims the operation. Every commit names the epoch of its process, and a commit of an " +
		"older epoch is refused: a process that another one has replaced can no longer change anything."},
	{"held", "A held message could not be published, or waits behind a held message of the same topic and key. The relay tries it again after a backoff, and " +
		"publishes other keys meanwhile. A held key is one that an open transaction has claimed: callers of the key wait, and then get ErrInProgress."},
	{"in doubt", "A call to another system was begun, and its outcome is not recorded: the call may have happened. Ask the other side by the key of the call. Then " +
		"record the outcome with resolve."},
	{"lane", "One of the 16 parts of the outbox. A hash of its key puts a message into a lane. One relay owns a lane at a time, so the messages of a key keep " +
		"their order."},
	{"parked", "A parked operation has stopped and waits for a person. Its reason code says why. Callers of its key get ErrParked until a person retries, " +
		"resolves or cancels the operation."},
}
