package journal

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Plan is what an operation does. It follows from the seed and the key, so that all callers and all
// processes agree on it.
type Plan struct {
	Key    string
	Rounds []Round
	End    End
	// WalkIn reports that the callers leave early, the call is slow, and no Worker knows the
	// operation before the end of the run.
	WalkIn bool
}

// Round is a Tx, a Call and a pause, each of which may be missing. A Tx has at most one undo, a
// Call at most two.
type Round struct {
	Tx     bool
	KeepTx bool          // the Tx has no undo
	Call   Safety        // "" if there is no call
	Window time.Duration // of a Keyed call
	Undos  int           // of the Call: 0, 1 (an UndoCall) or 2 (an UndoCall and an UndoTx)
	Refund Safety        // of the UndoCall
	Pause  Pause
	For    time.Duration // of the pause
	Day    Day           // changes and failures that need no fault
	Part   Part          // the child operation
}

// Safety is the policy of a call: what the library may do if its outcome is unknown.
type Safety string

// Policies of a call.
const (
	Keyed Safety = "keyed"
	Asked Safety = "asked"
	Once  Safety = "once"
)

// Pause is what an operation waits for after a round.
type Pause string

// Kinds of pauses.
const (
	NoPause Pause = ""
	Sleep   Pause = "sleep"
	Await   Pause = "await"  // for a signal that is sent soon
	Silence Pause = "silent" // for a signal that nobody sends
)

// End is how an operation ends, unless it is parked.
type End string

// Ends of an operation.
const (
	OK      End = "ok"
	Reject  End = "reject"
	Final   End = "final"    // a Final error: the operation is undone and the key is free
	Decline End = "declined" // the bank declines the last call
)

// step returns the name of a step of round n.
func (Round) step(kind string, n int) string { return fmt.Sprintf("%s-%d", kind, n) }

// Reserve returns the name of the Tx of round n.
func (r Round) Reserve(n int) string { return r.step("reserve", n) }

// Charge returns the name of the Call of round n.
func (r Round) Charge(n int) string { return r.step("charge", n) }

// Wait returns the name of the pause of round n.
func (r Round) Wait(n int) string { return r.step("wait", n) }

// UndoOf returns the name of an undo at the bank and in the database. index is the position of the
// undo among the undos of its step.
func UndoOf(step string, index int) string {
	if index > 0 {
		return fmt.Sprintf("%s%s##%d", undoPrefix, step, index+1)
	}
	return undoPrefix + step
}

const undoPrefix = "undo "

// Undone returns the step that an undo undoes. It returns "" for the name of a step.
func Undone(undo string) string {
	step, isUndo := strings.CutPrefix(undo, undoPrefix)
	if !isUndo {
		return ""
	}
	step, _, _ = strings.Cut(step, "##")
	return step
}

// LongWindow is a window of a Keyed call that is longer than any run.
const LongWindow = time.Hour

// PlanOf returns the plan of a key. The last round always has a call: without any call, the
// operation would be a single transaction.
func PlanOf(seed uint64, key string) Plan {
	h := fnv.New64a()
	h.Write([]byte(key))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	p := Plan{Key: key, End: pick(r, OK, OK, OK, OK, OK, Reject, Reject, Final, Decline)}
	for range 1 + r.IntN(3) {
		round := Round{Tx: r.IntN(5) > 0, Window: LongWindow, Refund: pick(r, Keyed, Keyed, Asked, Asked, Once)}
		round.KeepTx, round.Undos = r.IntN(5) == 0, pick(r, 0, 1, 1, 1, 2)
		if r.IntN(6) > 0 {
			round.Call = pick(r, Keyed, Keyed, Keyed, Asked, Asked, Once)
		}
		if r.IntN(15) == 0 {
			round.Window = 2 * time.Second
		}
		round.Pause = pick(r, NoPause, NoPause, NoPause, NoPause, Sleep, Await, Await, Silence)
		round.For = time.Duration(20+r.IntN(300)) * time.Millisecond
		switch {
		case round.Pause == Sleep && r.IntN(10) == 0:
			// The sleep is so long that the library releases the operation.
			round.For = 5100 * time.Millisecond
		case round.Pause == Await:
			round.For = time.Duration(1000+r.IntN(1000)) * time.Millisecond
		}
		p.Rounds = append(p.Rounds, round)
	}
	last := &p.Rounds[len(p.Rounds)-1]
	if last.Call == "" {
		last.Call = Keyed
	}
	if p.depth() > 0 { // the parent waits for it, so it is kept short
		p.Rounds = p.Rounds[max(len(p.Rounds)-2, 0):]
	}
	p.addDays(r)
	p.addParts(r)
	return p
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
