package letter

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	KindSay  Kind = "say"  // a worker is about to add letters to the outbox
	KindSaid Kind = "said" // the outcome of that
	KindTold Kind = "told" // the outcome of each delivery
	// A probe: how long the process, the database and the broker took for an empty request.
	KindProbe Kind = "probe"
)

// Event is a line in the history of a worker.
type Event struct {
	At       time.Duration   `json:"t"`
	Kind     Kind            `json:"e"`
	Op       history.Op      `json:"o"`
	Outcome  history.Outcome `json:"a,omitempty"`
	Answers  []Answer        `json:"answers,omitempty"`
	Consumer string          `json:"c,omitempty"`
	IDs      []string        `json:"ids,omitempty"`  // of the letters added to the outbox
	Took     time.Duration   `json:"took,omitempty"` // of a probe; of letters: their delay
}

// Answer is the outcome of one delivery.
type Answer struct {
	ID      string          `json:"i"`
	Forged  bool            `json:"forged,omitempty"` // another payload was delivered under this id
	Outcome history.Outcome `json:"a"`
	Err     string          `json:"err,omitempty"`
}

// Entry is a line in the books of the broker.
type Entry struct {
	At      time.Duration
	Taken   bool // the letter was published; otherwise refused
	Letter  Letter
	Altered bool // it differs from the outbox
}

// State is the state of the database at the end of a run. The fields of its rows have the order of
// the columns in the queries of package inquiry.
type State struct {
	Said    []Letter  // committed to the outbox
	Waiting []*ID     // still in the outbox
	Effects []*Effect // in the order of their inserts
	Dead    []*Dead
	Inbox   []*Inbox
	// Deadlocks is the number of deadlocks since the statistics of the server were last reset.
	Deadlocks int
}

// ID is the id of a letter.
type ID struct{ ID string }

// Effect is the row that a consumer wrote when it handled a letter.
type Effect struct {
	Consumer, ID string
	At           time.Duration // time of the insert, before its commit
}

// Dead is a row of idem.dead_letters.
type Dead struct {
	Consumer, Source, ID, Key, Reason string
	Payload                           []byte
	Attempts                          int
}

// Inbox is a row of the inbox: a message that a consumer has handled.
type Inbox struct{ Consumer, ID string }
