package journal

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is what an operation does. It follows from the seed and the key, so that all callers and all
// processes agree on it.
type Plan struct {
	Key    string
	Rounds []Round
	End    End
	// WalkIn marks a plan whose callers give up early and whose call is slow. No Worker executes
	// the operation before the end of the run.
	WalkIn bool
}

// Round is a Tx, a Call and a pause, each of which may be missing. A Tx has at most one undo, a
// Call at most two.
type Round struct {
	Tx     bool
	KeepTx bool          // the Tx has no undo
	Call   Safety        // "" if there is no call
	Window time.Duration // window of a Keyed call
	Undos  int           // undos of the Call: 0, 1 (an UndoCall) or 2 (an UndoCall and an UndoTx)
	Refund Safety        // policy of the UndoCall
	Pause  Pause
	For    time.Duration // length of the pause
	Day    Day           // changes of the code, and failures that no fault causes
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
	Await   Pause = "await"  // wait for a signal that is sent soon
	Silence Pause = "silent" // wait for a signal that is never sent
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

// UndoOf returns the name under which the bank and the database know an undo. index is the position
// of the undo among the undos of its step.
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

// Day is what goes wrong in a round by itself, and not because of an injected fault: the code
// changes between releases, charges are declined, and the function fails after a step has
// succeeded. The zero Day adds nothing to the round.
type Day struct {
	Change Change // how the code of the round changes between releases
	Since  int    // the first release with the change

	Cards   Refusal // the error with which card A, which is tried first, is declined; "" if there is only card B
	Trouble Trouble // the failure after the charge
	Unsent  bool    // some attempts fail before a request is sent
	Exact   bool    // a step returns an integer that a float64 cannot represent
	Bulk    bool    // many Tx instead of one
	Behind  bool    // the many Tx come after the charge
	Beside  bool    // a second charge is made at the same time
	Refuses bool    // an UndoTx fails half of the time, which parks the operation
}

// Change is how the code of a round changes with release Since of its Day. Inserted steps come
// before the charge.
type Change string

// Kinds of changes. A step behind Changed is executed only if Op.Changed returns true.
const (
	Unchanged      Change = ""
	PutInTx        Change = "a Tx"
	PutInCall      Change = "a Call"
	ChangedTx      Change = "a Tx, behind Changed"
	ChangedCall    Change = "a Call, behind Changed"
	Renamed        Change = "the charge has another name"
	RenamedReserve Change = "the Tx has another name"
	TakenOut       Change = "there is no charge"
	UndoPutIn      Change = "the charge has an undo, which it did not have"
	UndoTakenOut   Change = "the charge has no undo any more"
)

// Refusal is the type of the error with which card A is declined.
type Refusal string

// Types of errors.
const (
	NoRefusal Refusal = ""
	Accepted  Refusal = "accepted" // card A is not declined; card B is not needed
	Sentinel  Refusal = "a sentinel"
	Wrapped   Refusal = "a sentinel, wrapped with another"
	CustomIs  Refusal = "a type with an Is of its own"
	Interface Refusal = "a type that As finds by an interface"
	Opaque    Refusal = "a struct without exported fields"
	Errno     Refusal = "a syscall.Errno"
	PgError   Refusal = "a *pgconn.PgError"
)

// Trouble is a failure of the function after a charge, in about half of its runs.
type Trouble string

// Kinds of failures.
const (
	NoTrouble Trouble = ""
	Fails     Trouble = "an error"
	Panics    Trouble = "a panic"
	Violates  Trouble = "a constraint"
	Deferred  Trouble = "a constraint that COMMIT checks"
)

// Many is the number of Tx of a round with Bulk. It is more than the library puts into one
// transaction.
const Many = 36

// Releases is the number of releases of the code. They are numbered from 0.
const Releases = 3

// Has reports whether the release has the change c.
func (d *Day) Has(c Change, release int) bool { return d.Change == c && release >= d.Since }

// ChargeIn returns the name of the charge in a release, or "" if the release has no charge.
func (r *Round) ChargeIn(release, n int) string {
	switch {
	case r.Call == "", r.Day.Has(TakenOut, release):
		return ""
	case r.Day.Has(Renamed, release):
		return r.step("payment", n)
	}
	return r.Charge(n)
}

// ReserveIn returns the names of the Tx of the round in a release, in their order.
func (r *Round) ReserveIn(release, n int) (names []string) {
	name := r.Reserve(n)
	if r.Day.Has(RenamedReserve, release) {
		name = r.step("book", n)
	}
	switch {
	case !r.Tx:
	case r.Day.Bulk:
		for k := range Many {
			names = append(names, fmt.Sprintf("%s.%d", name, k))
		}
	default:
		names = []string{name}
	}
	return names
}

// ChargeUndos returns how many undos the charge has in a release.
func (r *Round) ChargeUndos(release int) int {
	isChanged := release >= r.Day.Since
	switch r.Day.Change {
	case UndoPutIn:
		if !isChanged {
			return 0
		}
		return max(r.Undos, 1)
	case UndoTakenOut:
		if isChanged {
			return 0
		}
		return max(r.Undos, 1)
	}
	return r.Undos
}

// ReserveUndos returns how many undos each Tx has.
func (r *Round) ReserveUndos() int {
	if r.KeepTx {
		return 0
	}
	return 1
}

// PartUndos returns how many undos the child has.
func (r *Round) PartUndos() int {
	if r.Part.Undo == NoUndo {
		return 0
	}
	return 1
}

// Steps returns the number of undos of each step that a release has, by the name of the step. It
// includes the charge of card A even if the release has no charge, because an earlier release may
// have made that charge.
func (p *Plan) Steps(release int) map[string]int {
	steps := map[string]int{}
	for i := range p.Rounds {
		round, n := &p.Rounds[i], i+1
		d := &round.Day
		switch {
		case !d.Has(d.Change, release):
		case d.Change == ChangedTx, d.Change == ChangedCall:
			steps[round.PutIn(n)], steps[round.Switch(n)] = 0, 0
		case d.Change == PutInTx, d.Change == PutInCall:
			steps[round.PutIn(n)] = 0
		}
		for _, name := range round.ReserveIn(release, n) {
			steps[name] = round.ReserveUndos()
		}
		for _, charge := range []string{round.ChargeIn(release, n), round.Card(n)} {
			if round.Call == "" || charge == "" {
				continue
			}
			steps[charge] = round.ChargeUndos(release)
			if d.Beside {
				steps[Beside(charge)] = round.ChargeUndos(release)
			}
		}
		if round.Part.At != Nowhere {
			steps[round.PartIn(release, n)] = round.PartUndos()
		}
		steps[round.Confirm(n)], steps[round.Count(n)], steps[round.Wait(n)] = 0, 0, 0
	}
	return steps
}

func (r Round) Card(n int) string    { return r.step("card", n) }    // the charge of card A
func (r Round) PutIn(n int) string   { return r.step("put-in", n) }  // the step that a Change inserts
func (r Round) Switch(n int) string  { return r.step("switch", n) }  // the name that the function passes to Op.Changed
func (r Round) Confirm(n int) string { return r.step("confirm", n) } // a Tx that violates a constraint
func (r Round) Count(n int) string   { return r.step("count", n) }   // a Tx that returns a large number

// Beside returns the name of the second charge, which is made in parallel with the named one.
func Beside(charge string) string { return charge + "-beside" }

// BesidePlace names the thing that the second charge pays for.
func BesidePlace(place string) string { return "beside " + place }

// Place names the thing that the charge of round n pays for, whatever the name of the charge.
func Place(n int) string { return fmt.Sprint("place ", n) }

// CardPlace names the thing that the charge of card A in round n pays for.
func CardPlace(n int) string { return fmt.Sprint("card A of place ", n) }

// Changes reports whether the code of the plan differs between releases.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Rounds, func(r Round) bool { return r.Day.Change != Unchanged || r.Part.Since > 0 })
}

// addDays adds a Day to the rounds of half of the plans. One in eight of these plans becomes a
// WalkIn instead, if it is not the plan of a child.
func (p *Plan) addDays(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	if r.IntN(8) == 0 && p.depth() == 0 {
		p.WalkIn = true
		p.Rounds = p.Rounds[len(p.Rounds)-1:]
		p.Rounds[0].Call, p.Rounds[0].Window = Keyed, LongWindow
		return
	}
	undos := r.IntN(5) == 0
	for n := range p.Rounds {
		last := n == len(p.Rounds)-1
		day := p.Rounds[n].day(r, last && p.End == Decline)
		// Without its last call, the operation would be one transaction.
		if last && day.Change == TakenOut {
			day.Change = Renamed
		}
		// Only the undos of the last round change. Otherwise no release might have all steps with
		// all their undos, and the operation could not be finished.
		if undos {
			day.Change, day.Since = Unchanged, 0
			if last {
				day.Change, day.Since = pick(r, UndoPutIn, UndoTakenOut), 1+r.IntN(Releases-1)
			}
		}
		p.Rounds[n].Day = day
	}
}

// ChangesUndos reports whether the number of undos of a step depends on the release.
func (p *Plan) ChangesUndos() bool {
	return slices.ContainsFunc(p.Rounds, func(r Round) bool { return r.Day.Change == UndoPutIn || r.Day.Change == UndoTakenOut })
}

// day draws the Day of a round. declined reports that the bank declines the charge of this round,
// which is then the last round and gets no second card.
func (r *Round) day(random *rand.Rand, declined bool) (d Day) {
	if random.IntN(2) == 0 {
		d.Change = pick(random, PutInTx, PutInCall, ChangedTx, ChangedCall, ChangedCall, Renamed, Renamed, RenamedReserve, TakenOut)
		d.Since = 1 + random.IntN(Releases-1)
	}
	if random.IntN(3) == 0 && !declined {
		d.Cards = pick(random, Accepted, Sentinel, Wrapped, CustomIs, Interface, Opaque, Errno, PgError)
	}
	if random.IntN(3) == 0 {
		d.Trouble = pick(random, Fails, Panics, Violates, Deferred)
	}
	d.Unsent = random.IntN(3) == 0
	d.Exact = random.IntN(6) == 0
	d.Bulk = random.IntN(5) == 0
	d.Behind = d.Bulk && random.IntN(2) == 0
	d.Beside = random.IntN(3) == 0
	d.Refuses = random.IntN(10) == 0
	return d
}

// Part is the part of a round that a child operation does. With the zero Part, the round has no
// child.
type Part struct {
	At     Spot
	Then   Then   // what the function does if the child does not complete
	Undo   Undo   // how the parent undoes the work of the child
	Since  int    // the first release in which the step has another name; 0: none
	Varies bool   // each release gives the child another plan
	Cancel bool   // a person sometimes cancels the operation when the child begins or has ended
	Safety Safety // policy of the undo, if the undo is a call
}

// Spot is the position in a round at which the child is begun.
type Spot string

// Positions of a child in its round.
const (
	Nowhere Spot = ""
	Front   Spot = "in front of all else"
	Between Spot = "in front of the charge"
	Behind  Spot = "behind the charge"
)

// Then is what the function does after a child that did not complete.
type Then string

// Reactions to a child that did not complete.
const (
	GoesOn   Then = "the function goes on"
	GivesUp  Then = "the function returns the error"
	Rejected Then = "the function rejects"
)

// Undo is the kind of undo of a child.
type Undo string

// Kinds of undos.
const (
	NoUndo   Undo = ""
	UndoTx   Undo = "a Tx"
	UndoCall Undo = "a Call"
)

// between separates the key of a plan from the number of the round in the key of a child's plan.
const between = "/part-"

// mostDeep is the maximum depth of nested children.
const mostDeep = 2

// PartIn returns the name of the step that begins the child in a release.
func (r *Round) PartIn(release, n int) string {
	if r.Part.Since > 0 && release >= r.Part.Since {
		return r.step("portion", n)
	}
	return r.step("part", n)
}

// PartPlace names the thing that an undo of the child refunds at the bank.
func PartPlace(n int) string { return fmt.Sprint("part ", n) }

// PartKey returns the common prefix of the keys of all plans that the child of round n may have.
func PartKey(parent string, n int) string { return fmt.Sprint(parent, between, n) }

// PartOf returns the plan of the child of round n.
func (p *Plan) PartOf(seed uint64, release, n int) Plan {
	key := PartKey(p.Key, n)
	if p.Rounds[n-1].Part.Varies {
		key += fmt.Sprint("/release-", release)
	}
	return PlanOf(seed, key)
}

// depth returns the number of ancestors of the operation.
func (p *Plan) depth() int { return strings.Count(p.Key, between) }

// addParts gives children to two of five plans. A WalkIn and a plan at the maximum depth get none.
func (p *Plan) addParts(r *rand.Rand) {
	if p.WalkIn || p.depth() >= mostDeep || r.IntN(5) > 1 {
		return
	}
	for n := range p.Rounds {
		round := &p.Rounds[n]
		if r.IntN(2) == 0 {
			continue
		}
		round.Part = Part{
			At: pick(r, Front, Between, Behind, Behind), Then: pick(r, GoesOn, GoesOn, GivesUp, Rejected), Undo: pick(r, NoUndo, NoUndo, UndoTx, UndoCall),
			Varies: r.IntN(4) == 0, Cancel: r.IntN(4) == 0, Safety: pick(r, Keyed, Asked),
		}
		if r.IntN(4) == 0 && !p.ChangesUndos() {
			round.Part.Since = 1 + r.IntN(Releases-1)
		}
	}
}

// ChildSaid formats the outcome of a child, as a function logs it and as package audit compares it.
func ChildSaid(state string, canceled bool, answer []byte) string {
	return fmt.Sprintf("child %s, canceled: %t, %s", state, canceled, answer)
}
