package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Day is what happens in a round on an ordinary day, when nothing is broken but the program changes, its errors are what errors
// are, and it fails behind what has succeeded. The zero Day is a round of old.
type Day struct {
	Change Change // how the code of the round changes between two releases
	Since  int    // the release from which it is as changed

	Cards   Refusal // of card A, with which it is tried first; none if there is one card
	Early   bool    // what takes the charge back is registered before it
	Late    bool    // a step stands between the charge and what takes it back
	Trouble Trouble // what follows the charge
	Unsent  bool    // attempts fail before anything is sent
	Exact   bool    // a step returns a number that a float64 does not hold
	Bulk    Bulk    // instead of one Tx
	Behind  bool    // the many Tx of a bulk are done behind the charge
	Beside  bool    // another call is made at the same time as the charge
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

// Bulk is what a round does in Postgres instead of one Tx.
type Bulk string

// The bulks.
const (
	Single Bulk = ""
	Whole  Bulk = "many Tx, taken back by one UndoTx"
	Each   Bulk = "many Tx, each taken back by its own UndoTx"
	Across Bulk = "a Tx before the charge and one behind it, taken back by one UndoTx"
)

// Many is how many Tx a bulk has: more than share a transaction.
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
	case r.Day.Bulk == Whole, r.Day.Bulk == Each:
		for k := range Many {
			names = append(names, fmt.Sprintf("%s.%d", name, k))
		}
	case r.Day.Bulk == Across:
		names = []string{name + ".0", name + ".1"}
	default:
		names = []string{name}
	}
	return names
}

// ReleaseOf is the name of what takes one Tx of a bulk back.
func (r Round) ReleaseOf(n, k int) string { return fmt.Sprintf("%s.%d", r.Release(n), k) }

func (r Round) Card(n int) string    { return r.step("card", n) }    // the charge of card A
func (r Round) PutIn(n int) string   { return r.step("put-in", n) }  // what is put in
func (r Round) Switch(n int) string  { return r.step("switch", n) }  // the name for Changed
func (r Round) Confirm(n int) string { return r.step("confirm", n) } // the Tx that breaks a constraint
func (r Round) Note(n int) string    { return r.step("note", n) }    // the Tx between a charge and what takes it back
func (r Round) Count(n int) string   { return r.step("count", n) }   // the Tx that returns a large number

// Beside is the name of the call that is made at the same time as a charge.
func Beside(charge string) string { return charge + "-beside" }

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
			names = append(names, charge, round.Card(n), round.Repay(n), round.Repay(n)+"-card", round.Note(n))
		}
		if round.Part.At != Nowhere {
			names = append(names, round.PartIn(release, n), round.Unpart(n))
		}
		names = append(names, round.Confirm(n), round.Count(n), round.Wait(n))
		if slices.Contains(names, step) || step == round.Release(n) || strings.HasPrefix(step, round.Release(n)+".") {
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
	for n := range p.Rounds {
		last := n == len(p.Rounds)-1
		day := p.Rounds[n].day(r, last && p.End == Decline)
		if last && day.Change == TakenOut { // without a call it would be one transaction
			day.Change = Renamed
		}
		p.Rounds[n].Day = day
	}
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
	d.Early = random.IntN(4) == 0
	d.Late = random.IntN(4) == 0
	if random.IntN(3) == 0 {
		d.Trouble = pick(random, Fails, Panics, Violates, Deferred)
	}
	d.Unsent = random.IntN(3) == 0
	d.Exact = random.IntN(6) == 0
	if random.IntN(5) == 0 {
		d.Bulk = pick(random, Whole, Each, Across)
		d.Behind = d.Bulk != Across && random.IntN(2) == 0
	}
	d.Beside = !d.Early && d.Bulk != Across && random.IntN(3) == 0
	return d
}
