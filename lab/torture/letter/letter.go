// Package letter defines the messages of a run and their fates, the events that workers and the
// broker log about them, and the rows of the database at the end.
package letter

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Topics. Workers publish to Orders, Slow and Nowhere. The consumer that bills orders publishes to
// Bills. Nowhere has no consumer, and Slow has one only in a run without a broker.
const (
	Orders  = "orders"
	Bills   = "bills"
	Slow    = "slow"    // its destination takes seconds for each call
	Nowhere = "nowhere" // Destination panics for it
)

// Consumer is a consumer of a topic.
type Consumer struct {
	Name  string
	Topic string
	// Ordered reports that the consumer handles the letters of a key in order.
	Ordered bool
	// Answers reports that the consumer publishes a letter to Bills for some letters.
	Answers bool
}

// Direct returns the consumers of a run without a broker, one for each topic.
func Direct() []Consumer {
	return []Consumer{
		{Name: "billing", Topic: Orders, Ordered: true, Answers: true},
		{Name: "mail", Topic: Bills, Ordered: true},
		{Name: "tenant", Topic: Slow, Ordered: true},
	}
}

// Consumers returns the consumers of a run with a broker.
func Consumers() []Consumer {
	return []Consumer{
		{Name: "billing", Topic: Orders, Ordered: true, Answers: true},
		{Name: "stock", Topic: Orders},
		{Name: "mail", Topic: Bills, Ordered: true},
	}
}

// Fate is the treatment that is planned for a letter. The broker and the consumers follow the plan.
type Fate string

// Fates.
const (
	Plain Fate = ""
	// The broker never takes the letter. It becomes a dead letter of the outbox.
	Unwanted Fate = "unwanted"
	Unnamed  Fate = "unnamed"  // like Unwanted, but the error of the Publisher does not name the letter
	Stubborn Fate = "stubborn" // the broker refuses it twice
	// The process that handles the letter loses its connection, a few times.
	Severed Fate = "severed"
	// No consumer can handle the letter. It becomes a dead letter of each.
	Poison       Fate = "poison"
	BrokenSQL    Fate = "broken SQL"      // like Poison, by an error of the database
	BrokenCommit Fate = "fails at commit" // like Poison, by an error at COMMIT
	Flaky        Fate = "flaky"           // handlers fail half of the time
	Passing      Fate = "passing"         // handlers fail half of the time, by a transient SQL error
	Swallows     Fate = "swallows"        // the handler ignores an SQL error
)

// CanDie reports whether the letter may become a dead letter of an inbox.
func (f Fate) CanDie() bool {
	return slices.Contains([]Fate{Poison, BrokenSQL, BrokenCommit, Flaky, Passing, Swallows}, f)
}

// MustDie reports whether no consumer can handle the letter.
func (f Fate) MustDie() bool { return f.CanDie() && f != Flaky && f != Passing }

// Letter is the payload of a message.
type Letter struct {
	ID    string
	Topic string
	Key   string // empty if the letter has no order
	N     int    // sequence number in its topic and key
	Fate  Fate
	Cause string        // id of the letter that this one answers
	Delay time.Duration `json:",omitempty"` // delay of the publication, by Message.NotBefore
}

// IsAnswered reports whether a consumer with Answers answers this letter.
func (l Letter) IsAnswered() bool { return l.N%4 == 1 }

// NewID returns an id for a letter.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Encode returns the payload of the message.
func (l Letter) Encode() []byte {
	encoded, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return encoded
}

// Decode decodes a payload.
func Decode(payload []byte) (l Letter, err error) {
	err = json.Unmarshal(payload, &l)
	return l, err
}

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	KindSay  Kind = "say"  // a worker is about to add letters to the outbox
	KindSaid Kind = "said" // the transaction that added the letters has ended
	KindTold Kind = "told" // a consumer got the outcomes of its deliveries
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
	IDs      []string        `json:"ids,omitempty"`  // ids of the letters that were added to the outbox
	Took     time.Duration   `json:"took,omitempty"` // length of a probe, or delay of letters
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
	Altered bool // it differs from what was added to the outbox
}

// State is the state of the database at the end of a run. The fields of its rows have the order of
// the columns in the queries of package inquiry.
type State struct {
	Said    []Letter  // committed to the outbox
	Waiting []*ID     // still in the outbox
	Effects []*Effect // sorted by the order of their inserts
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
