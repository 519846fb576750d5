package journal

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Kind is what an event tells.
type Kind string

// The kinds of events.
const (
	KindCall   Kind = "call"   // somebody calls Do or Start with a key
	KindReturn Kind = "return" // and is answered
	KindBegin  Kind = "begin"  // a run of the function of an operation begins
	KindEnd    Kind = "end"    // and ends, before the operation is let go of
	KindSignal Kind = "signal" // a signal was acknowledged
	KindMeddle Kind = "meddle" // a person is about to cancel an operation, to resolve one or to let it go on
	KindWait   Kind = "wait"   // a call waits, because its key is in progress
	KindHeard  Kind = "heard"  // the other side has answered, and the operation is about to be told
	KindUnsent Kind = "unsent" // an attempt has failed before anything was sent
	KindSaw    Kind = "saw"    // what a function has made of what a step has returned
	KindDie    Kind = "die"    // the worker is about to kill itself
	KindExit   Kind = "exit"   // the worker has ended in order
)

// Declined is what an operation has heard of a call that the other side refuses, which is an error. Anything else is a receipt.
const Declined = "declined"

// Event is a line of a worker.
type Event struct {
	Shard     uint8         `json:"p"` // always 0: the lines of a history begin with it
	At        time.Duration `json:"t"`
	Kind      Kind          `json:"e"`
	Op        history.Op    `json:"o"` // the call, or the run
	Pooled    bool          `json:"pooled,omitempty"`
	Verb      string        `json:"v,omitempty"`
	Key       string        `json:"k,omitempty"`
	Operation string        `json:"i,omitempty"`

	Outcome  history.Outcome `json:"a,omitempty"` // of a call
	Rejected bool            `json:"rejected,omitempty"`
	Answer   *Answer         `json:"answer,omitempty"`
	Parked   bool            `json:"parked,omitempty"`
	Err      string          `json:"err,omitempty"`

	Name  string `json:"n,omitempty"`     // of a signal, or a step
	Value string `json:"value,omitempty"` // what was heard, or seen

	By      history.Op `json:"by,omitempty"`      // of a run: the call that has begun it, if it was one
	Release int        `json:"release,omitempty"` // of a run: of its code
	Left    bool       `json:"left,omitempty"`    // of a run: its context had ended
	Failed  bool       `json:"failed,omitempty"`  // of a run: its function has returned an error that decides nothing, or has panicked

	Wall  int64 `json:"wall,omitempty"` // when its sender knew, by the database's clock, in microseconds
	Bytes int64 `json:"memory,omitempty"`
}

// The verbs of a call.
const (
	Do    = "Do"
	Start = "Start"
)

// Answer is the body of every response: which operation it is of, and what its steps have returned.
type Answer struct {
	Operation string
	Rejected  bool
	Values    map[string]string
	Paid      map[string]string // the receipts, by place
}

// Entry is a line of the bank's books.
type Entry struct {
	Shard     uint8         `json:"p"`
	At        time.Duration `json:"t"`
	Booked    bool          `json:"booked"` // if not, it was only asked for
	Key       string        `json:"key"`
	Operation string        `json:"i"`
	Step      string        `json:"n"`
	Receipt   string        `json:"receipt,omitempty"`
	Process   uint32        `json:"process"`
	Place     string        `json:"place,omitempty"`   // what is charged
	Refunds   string        `json:"refunds,omitempty"` // the place whose charge is taken back
	Given     string        `json:"given,omitempty"`   // of an undo: the value of its step
}

// Row is a line of what is in the database when all is over. One of them is set.
type Row struct {
	Shard     uint8      `json:"p"`
	Operation *Operation `json:"operation,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Signal    *Signal    `json:"signal,omitempty"`
	Effect    *Effect    `json:"effect,omitempty"`
	Record    *Record    `json:"record,omitempty"`
	Finding   *Finding   `json:"finding,omitempty"`
	Move      *Move      `json:"move,omitempty"`
}

// Operation is a row of idem.operations. The times are in microseconds.
type Operation struct {
	ID, Key, State, Step           string
	Reason, ReasonStep, ReasonText string // why it is parked
	LastError                      string
	Plan, Parent                   string // the key of its plan; the id of its parent, empty if it has none
	Undoing, Canceled, WithoutCode bool
	Epoch, Attempts                int
	Since, Ended                   int64
}

// Step is a row of idem.steps. The name of an undo is that of UndoOf.
type Step struct {
	Operation, Kind, Name, Outcome, Value string
	Seq                                   int
	Undos                                 int // how many undos the step has
	Due                                   int64
	Recorded                              time.Duration // by the history's clock
}

// Signal is a row of idem.signals.
type Signal struct {
	Operation, Name, Value string
	Sent                   int64
}

// Effect is a row that a Tx has written: the step, and what it returned.
type Effect struct {
	Operation, Step, Nonce string
	At                     time.Duration // by the history's clock, while it ran
	Amount                 int           // of the stock that it takes; what is given back is negative
	Given                  string        // of an undo: the value of its step
}

// Record is a row of idem.records.
type Record struct {
	ID, Key, State string
	Answer         *Answer
}

// Finding is what is left over of the workers.
type Finding struct{ Rule, Detail string }

// Move is a commit after which an operation has another owner, epoch or state than before.
type Move struct {
	Operation       string
	Epoch, Attempts int
	Owner           int // 0 if nobody has it
	State           string
	Reason          string // why it is parked, as a code
	ReasonStep      string
	ReasonText      string
	Kind, Step      string // at which it is
	Canceled        bool
	WithoutCalling  bool
	WithoutCode     bool
	Endless         bool              // nothing is due but what wakes it
	Rest            time.Duration     // of a suspect: until it is due for others, if its process dies
	Since           time.Duration     // that step was begun, by the history's clock
	At              time.Duration     // by the history's clock
	By              uint32            // the process that has made it; none if it was no worker
	Pooled          bool              // behind a pooler: it shows itself by a lease
	Known           map[string]string // where nobody has it, and where it is canceled: the outcomes of its steps, by name
}
