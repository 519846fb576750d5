package letter

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Kind is what a line of a worker tells.
type Kind string

// The kinds of lines.
const (
	KindSay    Kind = "say"    // somebody is about to put letters into the outbox
	KindSaid   Kind = "said"   // and is told the outcome of that
	KindHandle Kind = "handle" // a consumer is about to handle deliveries
	KindTold   Kind = "told"   // and is told the outcome of each
	KindRun    Kind = "run"    // a handler runs, for so many letters
	KindProbe  Kind = "probe"  // how long a process, the database and the broker took for nothing, with nothing broken
	KindExit   Kind = "exit"   // the worker has ended in order
)

// Event is a line of a worker.
type Event struct {
	Shard    uint8           `json:"p"` // always 0: the lines of a history begin with it
	At       time.Duration   `json:"t"`
	Kind     Kind            `json:"e"`
	Op       history.Op      `json:"o"`
	Verb     string          `json:"v,omitempty"`
	Letters  int             `json:"n,omitempty"`
	Outcome  history.Outcome `json:"a,omitempty"` // of all that have no answer of their own
	Answers  []Answer        `json:"answers,omitempty"`
	Consumer string          `json:"c,omitempty"`
	Err      string          `json:"err,omitempty"`
	Bytes    int64           `json:"memory,omitempty"`
	IDs      []string        `json:"ids,omitempty"`  // of the letters that were put into the outbox
	Took     time.Duration   `json:"took,omitempty"` // of a probe; of letters, for how long they are held back
}

// Answer is what was said of one delivery.
type Answer struct {
	ID      string          `json:"i"`
	Forged  bool            `json:"forged,omitempty"` // it was not the letter that was sent under that id
	Outcome history.Outcome `json:"a"`
	Err     string          `json:"err,omitempty"`
}

// Entry is a line of the broker's books.
type Entry struct {
	Shard    uint8         `json:"p"`
	At       time.Duration `json:"t"`
	Taken    bool          `json:"taken,omitempty"` // a letter was published; if not, it was refused
	Acked    string        `json:"acked,omitempty"` // by the consumer of that name
	Position int           `json:"n,omitempty"`     // among all that were taken
	Letter   Letter        `json:"l"`
	Altered  bool          `json:"altered,omitempty"` // it is not as it was put into the outbox
}

// Row is a line of what is in the database when all is over. One of them is set.
type Row struct {
	Shard   uint8    `json:"p"`
	Said    *Said    `json:"said,omitempty"`
	Effect  *Effect  `json:"effect,omitempty"`
	Waiting *Waiting `json:"waiting,omitempty"`
	Dead    *Dead    `json:"dead,omitempty"`
	Inbox   *Inbox   `json:"inbox,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
}

// Said is a letter that was committed with what it tells of.
type Said struct{ Letter Letter }

// Effect is what a consumer has written when it handled a letter.
type Effect struct {
	Consumer, ID string
	Place        int64         // among all effects, in the order in which they were written
	At           time.Duration // when it was written; it was committed later
}

// Waiting is a letter that is still in the outbox.
type Waiting struct{ ID string }

// Dead is a dead letter.
type Dead struct {
	Side, Consumer, Source, ID, Key, Reason string
	Payload                                 []byte
	Attempts                                int
}

// Inbox is a letter that a consumer remembers.
type Inbox struct{ Consumer, Source, ID string }

// Finding is what is left over of the workers.
type Finding struct{ Rule, Detail string }
