package journal

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Plan is the input of an operation: what it is to do follows from its key, whoever calls.
type Plan struct {
	Key    string
	Rounds []Round
	End    End
	// WalkIn says that its callers have no patience, its call is slow, and no Worker knows it before the end of the run.
	WalkIn bool
}

// Round is a Tx, a Call and a pause. Without a Safety there is no call. A Tx has one undo at most, and a Call has two.
type Round struct {
	Tx     bool
	KeepTx bool // a Tx has no undo
	Call   Safety
	Window time.Duration // of a Keyed call
	Undos  int           // of a Call: none, an UndoCall, or an UndoCall and an UndoTx
	Refund Safety        // of the UndoCall
	Pause  Pause
	For    time.Duration // of the pause
	Day    Day           // what else happens on an ordinary day
	Part   Part          // what is left to a child
}

// Safety is what is said of a call.
type Safety string

// The safeties.
const (
	Keyed Safety = "keyed"
	Asked Safety = "asked"
	Once  Safety = "once"
)

// Pause is what an operation waits for behind a round.
type Pause string

// The pauses.
const (
	NoPause Pause = ""
	Sleep   Pause = "sleep"
	Await   Pause = "await"  // a signal, which is sent soon
	Silence Pause = "silent" // a signal, which nobody sends
)

// End is how an operation ends, unless it is parked.
type End string

// The ends.
const (
	OK      End = "ok"
	Reject  End = "reject"
	Final   End = "final"    // an error that is final: undone, and the key is free
	Decline End = "declined" // the bank declines the last call
)

// The names of the steps of a round.
func (Round) step(kind string, n int) string { return fmt.Sprintf("%s-%d", kind, n) }

// Reserve is the name of the Tx of the nth round, and so on.
func (r Round) Reserve(n int) string { return r.step("reserve", n) }
func (r Round) Charge(n int) string  { return r.step("charge", n) }
func (r Round) Wait(n int) string    { return r.step("wait", n) }

// UndoOf is the name under which bank and database see an undo of a step. Index is its position among the undos of the step.
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

// LongWindow is the window of a Keyed call that no run outlasts.
const LongWindow = time.Hour

// PlanOf makes the plan of a key. The last round of each has a call, so that no operation is one transaction.
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
			round.For = 5100 * time.Millisecond // it frees whoever works on it
		case round.Pause == Await:
			round.For = time.Duration(1000+r.IntN(1000)) * time.Millisecond
		}
		p.Rounds = append(p.Rounds, round)
	}
	last := &p.Rounds[len(p.Rounds)-1]
	if last.Call == "" {
		last.Call = Keyed
	}
	if p.depth() > 0 { // its parent waits
		p.Rounds = p.Rounds[max(len(p.Rounds)-2, 0):]
	}
	p.addDays(r)
	p.addParts(r)
	return p
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
