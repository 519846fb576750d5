package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Day is what happens in a round without any fault: the code changes between releases, charges are
// declined, and the function fails after a step has succeeded. The zero Day adds nothing to the
// round.
type Day struct {
	Change Change // how the code of the round changes between releases
	Since  int    // the first release with the change

	Cards   Refusal // how card A, which is tried first, is declined; "" if there is one card
	Trouble Trouble // the failure after the charge
	Unsent  bool    // some attempts fail before anything is sent
	Exact   bool    // a step returns an integer that a float64 cannot represent
	Bulk    bool    // many Tx instead of one
	Behind  bool    // the many Tx come after the charge
	Beside  bool    // a second charge is made at the same time
	Refuses bool    // an UndoTx fails every other time and parks the operation
}

// Change is how the code of a round differs from release Since on. Inserted steps come before the
// charge.
type Change string

// Changes.
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
	Accepted  Refusal = "accepted" // not declined; card B is not needed
	Sentinel  Refusal = "a sentinel"
	Wrapped   Refusal = "a sentinel, wrapped with another"
	CustomIs  Refusal = "a type with an Is of its own"
	Interface Refusal = "a type that As finds by an interface"
	Opaque    Refusal = "a struct without exported fields"
	Errno     Refusal = "a syscall.Errno"
	PgError   Refusal = "a *pgconn.PgError"
)

// Trouble is a failure of the function after a charge, in every other run.
type Trouble string

// Failures.
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

// Undos returns how many undos a step has in a release. It returns 0 if the release lacks the step.
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
func (r Round) PutIn(n int) string   { return r.step("put-in", n) }  // the inserted step
func (r Round) Switch(n int) string  { return r.step("switch", n) }  // the name passed to Changed
func (r Round) Confirm(n int) string { return r.step("confirm", n) } // it violates a constraint
func (r Round) Count(n int) string   { return r.step("count", n) }   // it returns a large number

// Beside returns the name of the charge that is made at the same time as charge.
func Beside(charge string) string { return charge + "-beside" }

// BesidePlace returns the place that the second charge is for.
func BesidePlace(place string) string { return "beside " + place }

// Place returns what the charge of round n is for. It is the same under every name of the step.
func Place(n int) string { return fmt.Sprint("place ", n) }

// CardPlace returns what the charge of card A in round n is for.
func CardPlace(n int) string { return fmt.Sprint("card A of place ", n) }

// Knows reports whether a release has a step with that name.
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

// Changes reports whether the code of the plan differs between releases.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Rounds, func(r Round) bool { return r.Day.Change != Unchanged || r.Part.Since > 0 })
}

// addDays adds a Day to the rounds of half of the plans. One in eight of these becomes a WalkIn
// instead, if it is not the plan of a child.
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
