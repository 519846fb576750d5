package journal

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Part is what a round leaves to an operation of its own, a child. The zero Part is none.
type Part struct {
	At     Spot
	Then   Then   // what the function does if the child does not complete
	Undo   Undo   // what takes back what the child has done
	Since  int    // the release from which the step has another name, if it is not 0
	Varies bool   // each release gives the child another plan
	Cancel bool   // a person cancels about when it begins, or has ended
	Safety Safety // of the undo, if that is a call
}

// Spot is where in a round a child is begun.
type Spot string

// The spots.
const (
	Nowhere Spot = ""
	Front   Spot = "in front of all else"
	Between Spot = "in front of the charge"
	Behind  Spot = "behind the charge"
)

// Then is what follows a child that has not completed.
type Then string

// What may follow.
const (
	GoesOn   Then = "the function goes on"
	GivesUp  Then = "the function returns the error"
	Rejected Then = "the function rejects"
)

// Undo is the undo of a child.
type Undo string

// The undos.
const (
	NoUndo   Undo = ""
	UndoTx   Undo = "a Tx"
	UndoCall Undo = "a Call"
)

// between an operation and the number of a part of it stands, in the key of the plan of a child:
const between = "/part-"

// mostDeep is how deep children of children go.
const mostDeep = 2

// PartIn is the name of the step that begins the child in a release.
func (r *Round) PartIn(release, n int) string {
	if r.Part.Since > 0 && release >= r.Part.Since {
		return r.step("portion", n)
	}
	return r.step("part", n)
}

// PartPlace is what the child has done, to those who take it back.
func PartPlace(n int) string { return fmt.Sprint("part ", n) }

// PartKey is how the keys of all plans begin that the child of a round may have.
func PartKey(parent string, n int) string { return fmt.Sprint(parent, between, n) }

// PartOf is the plan of a child.
func (p *Plan) PartOf(seed uint64, release, n int) Plan {
	key := PartKey(p.Key, n)
	if p.Rounds[n-1].Part.Varies {
		key += fmt.Sprint("/release-", release)
	}
	return PlanOf(seed, key)
}

// depth is how many parents the operation has.
func (p *Plan) depth() int { return strings.Count(p.Key, between) }

// addParts gives two of five operations a child or several, but for those whose rounds are all left out.
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

// ChildSaid is what a function writes down of the end of a child.
func ChildSaid(state string, canceled bool, answer []byte) string {
	return fmt.Sprintf("child %s, canceled: %t, %s", state, canceled, answer)
}
