// Package history stores every call of every worker of a run in files. A worker appends one line of
// JSON for each [Event], with one write, before the call begins and after it has returned. The
// lines of a killed process stay in the file. Its last line may be incomplete, and its calls
// without a return are open. All processes use the same clock ([Now]).
package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Op identifies a call in a run. It consists of the slot of the worker, the number of earlier
// processes in that slot, and a counter.
type Op uint64

// NewOp returns the Op of the n-th call of a process.
func NewOp(slot, incarnation int, n uint32) Op {
	return Op(slot)<<48 | Op(incarnation&0xffff)<<32 | Op(n)
}

// Slot returns the slot of the worker that made the call.
func (o Op) Slot() int { return int(o >> 48) }

// Process returns a number that identifies the process within the run.
func (o Op) Process() uint32 { return uint32(o >> 32) }

func (o Op) String() string {
	return fmt.Sprintf("w%d.%d#%d", o.Slot(), uint16(o>>32), uint32(o))
}

// Kind is the kind of an event.
type Kind string

// Kinds of events. KindRun is written by fn, at the beginning of each of its executions.
const (
	KindCall   Kind = "call"
	KindRun    Kind = "run"
	KindReturn Kind = "return"
	KindExit   Kind = "exit" // the worker exits normally
)

// Event is a line of a history.
type Event struct {
	At     time.Duration `json:"t"`
	Kind   Kind          `json:"e"`
	Op     Op            `json:"o"`
	Call   *Call         `json:"c,omitempty"`
	Run    string        `json:"i,omitempty"` // the execution id that fn got
	Return *Return       `json:"r,omitempty"`
	Leaks  string        `json:"leaks,omitempty"` // goroutines that leaked, in the event of an exit
}

// Call has the arguments of a call.
type Call struct {
	Verb    string        `json:"v"`
	Scope   string        `json:"s"`
	Key     string        `json:"k"`
	Payload string        `json:"h"` // the request, which is hashed
	Fn      string        `json:"f"` // what fn does
	TTL     time.Duration `json:"ttl"`
	Wait    time.Duration `json:"wait,omitempty"`
	Wall    int64         `json:"w"` // time of day, in microseconds
}

// Verbs are the functions of the library that workers call.
const (
	Do     = "Do"
	DoTx   = "DoTx"
	DoJSON = "DoJSON"
)

// Kinds of fn that the checker must know. Reject leaves a record without an effect. The others end
// the transaction or try to.
const (
	Reject      = "reject"
	Commit      = "commit"                  // fn calls tx.Commit, which the library refuses
	Rollback    = "roll back"               // fn calls tx.Rollback, which the library refuses
	RollbackSQL = "roll back by SQL, leave" // the library cannot refuse a rollback by SQL
	RestartSQL  = "roll back by SQL, begin another"
	CommitSQL   = "commit by SQL, begin another" // used only in CommitScope
)

// EndsTransaction reports whether the fn ends its transaction or tries to.
func EndsTransaction(fn string) bool {
	return slices.Contains([]string{Commit, Rollback, RollbackSQL, RestartSQL, CommitSQL}, fn)
}

// CommitScope is the scope of the calls whose fn commits by SQL. Each of these calls has its own
// key. The library promises only to report the commit, because afterwards the effect exists and the
// record stays in progress.
const CommitScope = "fn commits"

// Outcome is the outcome of a call.
type Outcome string

// Outcomes. Executed and Replayed have a response. After Unknown and Ended the library promises
// nothing about the call. After all other outcomes it promises that the call committed nothing.
const (
	Executed   Outcome = "executed"
	Replayed   Outcome = "replayed"
	Mismatch   Outcome = "mismatch"
	InProgress Outcome = "in progress"
	FnFailed   Outcome = "fn failed"    // the error of fn
	Panicked   Outcome = "fn panicked"  // fn panicked or called runtime.Goexit
	Aborted    Outcome = "aborted"      // ErrTxAborted
	TooLarge   Outcome = "too large"    // ErrResponseTooLarge
	Undone     Outcome = "undone"       // a DoTx whose caller rolled back
	Cancelled  Outcome = "context over" // the error of the context
	// A serialization failure or deadlock, after all retries.
	Conflict   Outcome = "conflict"
	Failed     Outcome = "failed"     // any other error
	Ended      Outcome = "ended"      // ErrTxEnded
	Unreadable Outcome = "unreadable" // ErrUnreadable
	Died       Outcome = "died"       // the message became a dead letter
	// ErrOutcomeUnknown, or a COMMIT of the worker itself without an answer.
	Unknown Outcome = "unknown"
	Open    Outcome = "open" // the call never returned; no event has this outcome
)

// Answered reports whether the outcome has a response.
func (o Outcome) Answered() bool { return o == Executed || o == Replayed }

// CommittedNothing reports whether the library promises that the call committed nothing.
func (o Outcome) CommittedNothing() bool {
	return !slices.Contains([]Outcome{Executed, Replayed, Ended, Unknown, Open}, o)
}

// Orderly reports whether the server had finished its work for the call when the call returned.
func (o Outcome) Orderly() bool {
	return !slices.Contains([]Outcome{Cancelled, Failed, Conflict, Unknown, Open}, o)
}

// Return is the end of a call. Times are in microseconds, by the clock of the database.
type Return struct {
	Outcome     Outcome `json:"a"`
	Rejected    bool    `json:"rejected,omitempty"`
	ExecutionID string  `json:"i,omitempty"`
	Digest      string  `json:"d,omitempty"` // digest of the complete response
	Maker       Op      `json:"m,omitempty"` // the call that made the response, as named in it
	Created     int64   `json:"cr,omitempty"`
	Completed   int64   `json:"co,omitempty"`
	Expires     int64   `json:"ex,omitempty"`
	Err         string  `json:"err,omitempty"`
}

// Forever is the end of a call that never returned.
const Forever = time.Duration(math.MaxInt64)

// Operation is one call, from its beginning to its end.
type Operation struct {
	Op Op
	Call
	Begin, End time.Duration // End is Forever if the call is open
	Runs       []Run         // runs of fn, in order
	Return
}

// Run is one execution of fn.
type Run struct {
	At          time.Duration
	ExecutionID string
}

func (o *Operation) String() string {
	s := fmt.Sprintf("%v %s payload=%s fn=%q ttl=%v", o.Op, o.Verb, o.Payload, o.Fn, o.TTL)
	if n := len(o.Runs); n > 0 {
		s += fmt.Sprintf(" runs=%d", n)
	}
	s += " -> " + string(o.Outcome)
	if o.Rejected {
		s += " (rejected)"
	}
	if o.ExecutionID != "" {
		s += fmt.Sprintf(" execution=%.8s made by %v digest=%s", o.ExecutionID, o.Maker, o.Digest)
	}
	if o.Err != "" {
		s += ": " + o.Err
	}
	return s
}

// Operations returns the calls of a run, sorted by their beginning. It fails if an event does not
// belong to an open call.
func Operations(events []Event) ([]*Operation, error) {
	byOp := make(map[Op]*Operation)
	for i := range events {
		if err := add(byOp, &events[i]); err != nil {
			return nil, err
		}
	}
	operations := slices.Collect(maps.Values(byOp))
	slices.SortFunc(operations, func(a, b *Operation) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Op, b.Op))
	})
	return operations, nil
}

func add(byOp map[Op]*Operation, event *Event) error {
	o := byOp[event.Op]
	switch {
	case event.Kind == KindExit:
	case event.Kind == KindCall && event.Call != nil && o == nil:
		byOp[event.Op] = &Operation{
			Op: event.Op, Call: *event.Call, Begin: event.At, End: Forever, Return: Return{Outcome: Open},
		}
	case o == nil || o.End != Forever:
		return fmt.Errorf("%s of %v, which is not under way", event.Kind, event.Op)
	case event.Kind == KindRun:
		o.Runs = append(o.Runs, Run{event.At, event.Run})
	case event.Kind == KindReturn && event.Return != nil:
		o.Return, o.End = *event.Return, event.At
	default:
		return fmt.Errorf("%v: an event of kind %q", event.Op, event.Kind)
	}
	return nil
}
