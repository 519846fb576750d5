package letter

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	KindSay    Kind = "say"    // a worker is about to add letters to the outbox
	KindSaid   Kind = "said"   // the outcome of that
	KindHandle Kind = "handle" // a consumer is about to handle deliveries
	KindTold   Kind = "told"   // the outcome of each delivery
	KindRun    Kind = "run"    // a handler runs
	// A probe: how long the process, the database and the broker took for an empty request.
	KindProbe Kind = "probe"
	KindExit  Kind = "exit" // the worker ended in order
)

// Event is a line in the history of a worker.
type Event struct {
	Shard    uint8           `json:"p"` // always 0; every line of a history begins with it
	At       time.Duration   `json:"t"`
	Kind     Kind            `json:"e"`
	Op       history.Op      `json:"o"`
	Verb     string          `json:"v,omitempty"`
	Letters  int             `json:"n,omitempty"`
	Outcome  history.Outcome `json:"a,omitempty"` // of all letters without an answer of their own
	Answers  []Answer        `json:"answers,omitempty"`
	Consumer string          `json:"c,omitempty"`
	Err      string          `json:"err,omitempty"`
	Bytes    int64           `json:"memory,omitempty"`
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
	Shard    uint8         `json:"p"`
	At       time.Duration `json:"t"`
	Taken    bool          `json:"taken,omitempty"` // the letter was published; otherwise refused
	Acked    string        `json:"acked,omitempty"` // the consumer that acknowledged it
	Position int           `json:"n,omitempty"`     // among all letters that were taken
	Letter   Letter        `json:"l"`
	Altered  bool          `json:"altered,omitempty"` // it differs from the outbox
}

// Row is one row of the database at the end of a run. Exactly one of its pointers is set.
type Row struct {
	Shard   uint8    `json:"p"`
	Said    *Said    `json:"said,omitempty"`
	Effect  *Effect  `json:"effect,omitempty"`
	Waiting *Waiting `json:"waiting,omitempty"`
	Dead    *Dead    `json:"dead,omitempty"`
	Inbox   *Inbox   `json:"inbox,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
}

// Said is a letter that was committed to the outbox.
type Said struct{ Letter Letter }

// Effect is the row that a consumer wrote when it handled a letter.
type Effect struct {
	Consumer, ID string
	Place        int64         // position among all effects, in the order of their inserts
	At           time.Duration // time of the insert, before its commit
}

// Waiting is a letter that is still in the outbox.
type Waiting struct{ ID string }

// Dead is a row of idem.dead_letters.
type Dead struct {
	Side, Consumer, Source, ID, Key, Reason string
	Payload                                 []byte
	Attempts                                int
}

// Inbox is a row of the inbox: a message that a consumer has handled.
type Inbox struct{ Consumer, Source, ID string }

// Finding is something that the workers left behind.
type Finding struct{ Rule, Detail string }
