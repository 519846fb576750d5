// Package journal has the types of everything that is recorded in a run of operations: the events
// of the workers, the books of the simulated bank, and the rows of the database. Package audit
// reads them. Package journal also derives the plan of an operation, which says what its function
// does, from its key. It shares no code with the library.
package journal

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	KindCall   Kind = "call"   // a call of Do or Start begins
	KindReturn Kind = "return" // the call returns
	KindBegin  Kind = "begin"  // a run of the function of an operation begins
	KindEnd    Kind = "end"    // the run ends; the operation is not released yet
	KindSignal Kind = "signal" // a signal was acknowledged
	KindWait   Kind = "wait"   // a call waits because its key is in progress
	KindHeard  Kind = "heard"  // the bank answered; the operation does not have the answer yet
	KindUnsent Kind = "unsent" // an attempt of a call failed before a request was sent
	KindSaw    Kind = "saw"    // the result of a step, as the function sees it
	KindDie    Kind = "die"    // the worker is about to kill itself
	KindExit   Kind = "exit"   // the worker exits normally
)

// Declined is the value of a KindHeard event for a call that the bank declined. Other values are
// receipts.
const Declined = "declined"

// Event is a line in the history of a worker.
type Event struct {
	At        time.Duration `json:"t"`
	Kind      Kind          `json:"e"`
	Op        history.Op    `json:"o"` // the call or the run
	Pooled    bool          `json:"pooled,omitempty"`
	Verb      string        `json:"v,omitempty"`
	Key       string        `json:"k,omitempty"`
	Operation string        `json:"i,omitempty"`

	Rejected bool    `json:"rejected,omitempty"`
	Answer   *Answer `json:"answer,omitempty"`
	Parked   bool    `json:"parked,omitempty"`

	Name  string `json:"n,omitempty"`     // name of a signal or of a step
	Value string `json:"value,omitempty"` // KindHeard: the answer of the bank; KindSaw: the result of the step

	By   history.Op `json:"by,omitempty"`   // begin of a run: the call that began it
	Left bool       `json:"left,omitempty"` // end of a run: its context had ended
	// End of a run: its function panicked or returned an error that does not end the operation.
	Failed bool `json:"failed,omitempty"`

	// Signal: when its sender got the acknowledgement, in microseconds, by the clock of the
	// database.
	Wall int64 `json:"wall,omitempty"`
}

// Verbs are the methods of operation.Definition that workers call.
const (
	Do    = "Do"
	Start = "Start"
)

// Answer is the body of every response: the operation and the values of its steps.
type Answer struct {
	Operation string
	Rejected  bool
	Values    map[string]string
	Paid      map[string]string // receipts, by Entry.Place
}

// Entry is a line in the books of the bank: a request, and whether it was booked.
type Entry struct {
	At                                     time.Duration
	Booked                                 bool // false: the request did not book anything
	Key, Operation, Step, Receipt, Refunds string
	Place                                  string // what the charge is for
	Given                                  string // value that an undo got from the step that it undoes
}

// State is the state of the database at the end of a run. The fields of its rows have the order of
// the columns in the queries of package audit.
type State struct {
	Operations []*Operation
	Steps      []*Step // sorted by their sequence numbers
	Signals    []*Signal
	Effects    []*Effect
	Records    []*Record
	Moves      []*Move // sorted by the time of their commits
}

// Operation is a row of idem.operations.
type Operation struct {
	ID, Key, Plan, Parent          string // Plan is the key of the plan; Parent is the id of the parent, or ""
	State, Step                    string
	Reason, ReasonStep, ReasonText string // why the operation is parked; the text is only printed
	LastError                      string
	Undoing, Canceled, WithoutCode bool
}

// Step is a row of idem.steps. For an undo, Name is the name that UndoOf returns.
type Step struct {
	Operation, Kind, Name, Outcome string
	Undos                          int // the recorded number of undos
	Value                          string
	Due                            int64         // end of a pause, in microseconds since 1970; 0: none
	Recorded                       time.Duration // time of recording, by the clock of package history
}

// Signal is a row of idem.signals.
type Signal struct{ Operation, Name, Value string }

// Effect is a row that a Tx wrote. Nonce is the value that the Tx returned.
type Effect struct {
	Operation, Step, Nonce string
	At                     time.Duration // when the Tx ran, by the clock of package history
	Given                  string        // value that an undo got from the step that it undoes
}

// Record is a row of idem.records.
type Record struct {
	ID, Key, State string
	Body           []byte
	Answer         *Answer `db:"-"` // decoded from Body; nil if Body has none
}

// Move is a commit that changed the owner, the epoch or the state of an operation. A trigger
// records it.
type Move struct {
	Operation          string
	Epoch, Attempts    int
	Owner              int // 0 if the operation is released
	State              string
	Reason, ReasonStep string // why it is parked
	Kind, Step         string // the current step
	Canceled           bool
	WithoutCalling     bool
	WithoutCode        bool
	Endless            bool              // the operation has no timeout; only an event wakes it
	Deaths             int               // number of consecutive attempts whose process died
	Rest               time.Duration     // delay before the next claim, after three deaths or more
	Since              time.Duration     // start of the step, by the clock of package history
	At                 time.Duration     // time of the commit, by the clock of package history
	By                 uint32            // the process; math.MaxUint32 if it is not a worker
	Pooled             bool              // the process is behind a pooler and has a lease
	Known              map[string]string // recorded outcomes, by step; set if the move releases or cancels the operation
}
