package journal

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Part is the part of a round that a child operation does. The zero Part is no child.
type Part struct {
	At     Spot
	Then   Then   // what the function does if the child does not complete
	Undo   Undo   // how the parent undoes the work of the child
	Since  int    // the first release in which the step has another name; 0: none
	Varies bool   // each release gives the child another plan
	Cancel bool   // a person cancels the operation when the child begins or has ended
	Safety Safety // of the undo, if the undo is a call
}

// Spot is the position in a round at which the child is begun.
type Spot string

// Spots.
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

// PartPlace returns the place that an undo of the child names at the bank.
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

// ChildSaid formats the end of a child, as a function logs it and as package audit compares it.
func ChildSaid(state string, canceled bool, answer []byte) string {
	return fmt.Sprintf("child %s, canceled: %t, %s", state, canceled, answer)
}
