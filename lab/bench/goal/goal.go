// Package goal says how good idem is to be, and judges a run by it.
package goal

import (
	"github.com/idem-go/idem/lab/bench/result"
)

// Goal is something that can be met or missed in some places.
type Goal struct {
	Name   string // as -only selects it
	Rule   string
	places []place
}

// place is where a goal is looked at.
type place struct {
	where string
	needs func(step, contestant string) bool // whether that contestant has to take that step
	judge func(*result.Results) finding
}

// finding is what was seen in a place.
type finding struct {
	measured string
	verdict  Verdict
	against  string // who idem was compared with, where that is found out by measuring
}

// Verdict says the outcome of a goal.
type Verdict string

// The verdicts.
const (
	Met       Verdict = "met"
	Missed    Verdict = "missed"
	Undecided Verdict = "undecided" // the rounds lie on both sides of the bound, as they may by chance
	Absent    Verdict = "not measured"
)

func verdict(ok bool) Verdict {
	if ok {
		return Met
	}
	return Missed
}

// Judgement is the outcome of a goal in one place.
type Judgement struct {
	Goal            Goal
	Where, Measured string
	Verdict         Verdict
}

// Judge evaluates all goals, place by place.
func Judge(r *result.Results) []Judgement {
	var all []Judgement
	for _, g := range All() {
		for _, p := range g.places {
			f := p.judge(r)
			if f.verdict == "" {
				f = finding{"-", Absent, ""}
			}
			where := p.where
			if f.against != "" {
				where += ", against " + f.against
			}
			all = append(all, Judgement{g, where, f.measured, f.verdict})
		}
	}
	return all
}

// Needs tells whether a contestant has to take a step so that the goal can be judged.
func (g Goal) Needs(step, contestant string) bool {
	for _, p := range g.places {
		if p.needs(step, contestant) {
			return true
		}
	}
	return false
}
