package history

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Shards is into how many parts a history can be divided.
const Shards = 256

// ShardOf is the part that a key belongs to.
func ShardOf(scope, key string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(scope))
	h.Write([]byte{0})
	h.Write([]byte(key))
	return uint8(h.Sum32())
}

// Op names one call in a run: by the slot of its worker, how many processes the slot had before, and a counter.
type Op uint64

// NewOp returns the name of the n-th call of a process.
func NewOp(slot, incarnation int, n uint32) Op {
	return Op(slot)<<48 | Op(incarnation&0xffff)<<32 | Op(n)
}

// Slot is the slot of the worker that made the call.
func (o Op) Slot() int { return int(o >> 48) }

// Process tells the processes of a run apart.
func (o Op) Process() uint32 { return uint32(o >> 32) }

func (o Op) String() string {
	return fmt.Sprintf("w%d.%d#%d", o.Slot(), uint16(o>>32), uint32(o))
}

// Kind is what an event tells.
type Kind string

// The kinds of events. A run begins in fn, once per execution of fn.
const (
	KindCall   Kind = "call"
	KindRun    Kind = "run"
	KindReturn Kind = "return"
	KindExit   Kind = "exit" // the worker ended in order
)

// Event is a line of a history.
type Event struct {
	Shard  uint8         `json:"p"` // the first field, so that a history can be divided without decoding it
	At     time.Duration `json:"t"`
	Kind   Kind          `json:"e"`
	Op     Op            `json:"o"`
	Call   *Call         `json:"c,omitempty"`
	Run    string        `json:"i,omitempty"` // the execution id that fn sees
	Return *Return       `json:"r,omitempty"`
	Leaks  string        `json:"leaks,omitempty"`  // at exit: goroutines that should not be there
	Memory int64         `json:"memory,omitempty"` // at exit: the most that the worker took, in bytes
}

// Call is what was asked for.
type Call struct {
	Verb     string        `json:"v"`
	Scope    string        `json:"s"`
	Key      string        `json:"k"`
	Payload  string        `json:"h"` // what is hashed
	Fn       string        `json:"f"` // what fn will do
	TTL      time.Duration `json:"ttl"`
	Wait     time.Duration `json:"wait,omitempty"`
	Timeout  time.Duration `json:"limit,omitempty"` // of the context
	Settings string        `json:"x"`               // isolation level and exec mode
	Wall     int64         `json:"w"`               // the time of day, in microseconds
}

// The verbs of a call.
const (
	Do     = "Do"
	DoTx   = "DoTx"
	DoJSON = "DoJSON"
)

// What fn may do that one has to know of to judge the answer. Reject is the one that leaves a record without an effect; the
// others end the transaction, or try to.
const (
	Reject      = "reject"
	Commit      = "commit"                  // on the tx, which refuses it
	Rollback    = "roll back"               // on the tx, which refuses it
	RollbackSQL = "roll back by SQL, leave" // which nobody can refuse
	RestartSQL  = "roll back by SQL, begin another"
	CommitSQL   = "commit by SQL, begin another" // only in CommitScope
)

// EndsTransaction reports whether a fn ends its transaction, or tries to.
func EndsTransaction(fn string) bool {
	switch fn {
	case Commit, Rollback, RollbackSQL, RestartSQL, CommitSQL:
		return true
	}
	return false
}

// CommitScope is the scope of the calls whose fn commits by SQL, each with a key of its own. All that the library promises
// then is to say so: the effect is there, and the record of the key stays in progress.
const CommitScope = "fn commits"

// Outcome is what was answered.
type Outcome string

// The outcomes. Executed and Replayed are answers with a response; after Unknown and Ended the library promises nothing
// about this call; after all others it promises that the call has committed nothing.
const (
	Executed   Outcome = "executed"
	Replayed   Outcome = "replayed"
	Mismatch   Outcome = "mismatch"
	InProgress Outcome = "in progress"
	FnFailed   Outcome = "fn failed"    // fn's own error came back
	Panicked   Outcome = "fn panicked"  // or called Goexit
	Aborted    Outcome = "aborted"      // ErrTxAborted
	TooLarge   Outcome = "too large"    // ErrResponseTooLarge
	Undone     Outcome = "undone"       // a DoTx whose caller rolled back
	Cancelled  Outcome = "context over" // the error of the context
	Conflict   Outcome = "conflict"     // a serialization failure or deadlock that outlived the retries
	Failed     Outcome = "failed"       // any other error
	Ended      Outcome = "ended"        // ErrTxEnded
	Unreadable Outcome = "unreadable"   // ErrUnreadable
	Died       Outcome = "died"         // of a message: it is a dead letter
	Unknown    Outcome = "unknown"      // ErrOutcomeUnknown, or a COMMIT of the worker's own without an answer
	Open       Outcome = "open"         // never returned; no event has it
)

// Answered reports whether the outcome carries a response.
func (o Outcome) Answered() bool { return o == Executed || o == Replayed }

// CommittedNothing reports whether the library promises that the call has left nothing behind.
func (o Outcome) CommittedNothing() bool {
	switch o {
	case Executed, Replayed, Ended, Unknown, Open:
		return false
	}
	return true
}

// Orderly reports whether the call ended by itself, with all that it had begun: at its end the server knew.
func (o Outcome) Orderly() bool {
	switch o {
	case Cancelled, Failed, Conflict, Unknown, Open:
		return false
	}
	return true
}

// Return is how a call ended. The times are those of the database's clock, in microseconds.
type Return struct {
	Outcome     Outcome `json:"a"`
	Rejected    bool    `json:"rejected,omitempty"`
	ExecutionID string  `json:"i,omitempty"`
	Digest      string  `json:"d,omitempty"` // of the whole response
	Maker       Op      `json:"m,omitempty"` // the call whose response it is, as the response says
	Created     int64   `json:"cr,omitempty"`
	Completed   int64   `json:"co,omitempty"`
	Expires     int64   `json:"ex,omitempty"`
	Err         string  `json:"err,omitempty"`
}
