package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Day is what happens in a round on an ordinary day, when nothing is broken but the program changes, its errors are what errors
// are, and it fails behind what has succeeded. The zero Day is a round of old.
type Day struct {
	Change Change // how the code of the round changes between two releases
	Since  int    // the release from which it is as changed

	Cards   Refusal // of card A, with which it is tried first; none if there is one card
	Trouble Trouble // what follows the charge
	Unsent  bool    // attempts fail before anything is sent
	Exact   bool    // a step returns a number that a float64 does not hold
	Bulk    bool    // many Tx instead of one
	Behind  bool    // the many Tx are done behind the charge
	Beside  bool    // another charge is made at the same time
	Refuses bool    // an UndoTx fails every other time, and parks the operation
}

// Change is how the code of a round differs from the release Since on. What is put in stands in front of the charge.
type Change string

// The changes.
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

// The types of errors.
const (
	NoRefusal Refusal = ""
	Accepted  Refusal = "accepted" // it is not declined: card B is not needed
	Sentinel  Refusal = "a sentinel"
	Wrapped   Refusal = "a sentinel, wrapped with another"
	CustomIs  Refusal = "a type with an Is of its own"
	Interface Refusal = "a type that As finds by an interface"
	Opaque    Refusal = "a struct without exported fields"
	Errno     Refusal = "a syscall.Errno"
	PgError   Refusal = "a *pgconn.PgError"
)

// Trouble is what goes wrong in the function behind a charge, every other time.
type Trouble string

// The troubles.
const (
	NoTrouble Trouble = ""
	Fails     Trouble = "an error"
	Panics    Trouble = "a panic"
	Violates  Trouble = "a constraint"
	Deferred  Trouble = "a constraint that COMMIT checks"
)

// Many is how many Tx a round with Bulk has: more than share a transaction.
const Many = 36

// Releases of the code are numbered from 0.
const Releases = 3

// Has reports whether the code of a release has the change.
func (d *Day) Has(c Change, release int) bool { return d.Change == c && release >= d.Since }

// ChargeIn is the name of the charge in a release, empty if there is none.
func (r *Round) ChargeIn(release, n int) string {
	switch {
	case r.Call == "", r.Day.Has(TakenOut, release):
		return ""
	case r.Day.Has(Renamed, release):
		return r.step("payment", n)
	}
	return r.Charge(n)
}

// ReserveIn are the names of the Tx of the round in a release, in their order.
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

// ChargeUndos is how many undos the charge has in a release.
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

// ReserveUndos is how many undos each Tx has.
func (r *Round) ReserveUndos() int {
	if r.KeepTx {
		return 0
	}
	return 1
}

// PartUndos is how many undos the child has.
func (r *Round) PartUndos() int {
	if r.Part.Undo == NoUndo {
		return 0
	}
	return 1
}

// Undos returns how many undos a step has in a release, 0 if that does not have the step.
func (p *Plan) Undos(release int, step string) int {
	for i := range p.Rounds {
		round, n := &p.Rounds[i], i+1
		charge, card := round.ChargeIn(release, n), round.Card(n)
		switch step {
		case charge, card, Beside(charge), Beside(card):
			return round.ChargeUndos(release)
		case round.PartIn(release, n):
			return round.PartUndos()
		}
		if slices.Contains(round.ReserveIn(release, n), step) {
			return round.ReserveUndos()
		}
	}
	return 0
}

func (r Round) Card(n int) string    { return r.step("card", n) }    // the charge of card A
func (r Round) PutIn(n int) string   { return r.step("put-in", n) }  // what is put in
func (r Round) Switch(n int) string  { return r.step("switch", n) }  // the name for Changed
func (r Round) Confirm(n int) string { return r.step("confirm", n) } // the Tx that breaks a constraint
func (r Round) Count(n int) string   { return r.step("count", n) }   // the Tx that returns a large number

// Beside is the name of the charge that is made at the same time as another one.
func Beside(charge string) string { return charge + "-beside" }

// BesidePlace is what it charges.
func BesidePlace(place string) string { return "beside " + place }

// Place is what is charged, whatever the step is called in a release.
func Place(n int) string { return fmt.Sprint("place ", n) }

// CardPlace is what is charged to card A.
func CardPlace(n int) string { return fmt.Sprint("card A of place ", n) }

// Knows reports whether a release has a step of that name.
func (p *Plan) Knows(release int, step string) bool {
	for i := range p.Rounds {
		round, n := &p.Rounds[i], i+1
		var names []string
		d := &round.Day
		switch {
		case !d.Has(d.Change, release):
		case d.Change == ChangedTx, d.Change == ChangedCall:
			names = append(names, round.PutIn(n), round.Switch(n))
		case d.Change == PutInTx, d.Change == PutInCall:
			names = append(names, round.PutIn(n))
		}
		names = append(names, round.ReserveIn(release, n)...)
		if charge := round.ChargeIn(release, n); charge != "" {
			if d.Beside {
				names = append(names, Beside(charge), Beside(round.Card(n)))
			}
			names = append(names, charge, round.Card(n))
		}
		if round.Part.At != Nowhere {
			names = append(names, round.PartIn(release, n))
		}
		names = append(names, round.Confirm(n), round.Count(n), round.Wait(n))
		if slices.Contains(names, step) {
			return true
		}
	}
	return false
}

// Changes reports whether the code of the plan is not the same in all releases.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Rounds, func(r Round) bool { return r.Day.Change != Unchanged })
}

// addDays makes every other operation one of an ordinary day.
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
		if last && day.Change == TakenOut { // without a call it would be one transaction
			day.Change = Renamed
		}
		if undos { // and nothing else changes, or no release would have all steps with all undos
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

// day draws what happens in a round. One whose charge is declined is the last and has no other card.
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
