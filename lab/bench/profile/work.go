package main

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/sidebyside"
)

// work is what all courses of a table do.
type work struct {
	Name     string
	courses  []course
	business contestant.Business
	again    bool // the same keys are called over and over: all but their first calls are replays
}

// works are in the order of the report.
var works = []work{
	{Name: "a first run of one INSERT", courses: writes, business: contestant.OneInsert},
	{Name: "a first run of the realistic write", courses: writes, business: contestant.Realistic},
	{Name: "a replay", courses: replays, business: contestant.OneInsert, again: true},
}

// account is what the courses of a work took, round by round.
type account struct {
	work work
	rows []row
}

type row struct {
	course  course
	timings []timing
}

const (
	responseSize = 200 // bytes, as in the other sections
	replayedKeys = 100
)

// calls measures all works.
func calls(ctx context.Context, s *sidebyside.Server, r *results) error {
	for _, w := range works {
		w.courses = named(w.courses, r.only)
		a, err := measureWork(ctx, s, w, r.plan)
		if err != nil {
			return err
		}
		r.accounts = append(r.accounts, a)
	}
	return nil
}

// measureWork lets all courses take turns, in another order each round.
func measureWork(ctx context.Context, s *sidebyside.Server, w work, p plan) (*account, error) {
	stands, err := openAll(ctx, s, w.courses)
	if err != nil {
		return nil, err
	}
	defer closeAll(stands)
	a, random := &account{work: w}, rand.New(rand.NewPCG(p.seed, 0))
	source := measure.NewSource(p.seed, w.business, responseSize)
	fixed := source.Take(replayedKeys)
	for _, c := range w.courses {
		a.rows = append(a.rows, row{course: c})
	}
	for round := -1; round < p.rounds; round++ { // the first is not counted: it opens connections and settles plans
		for _, i := range random.Perm(len(stands)) {
			keys := source.Take(p.calls)
			if w.again {
				keys = slices.Repeat(fixed, p.calls/replayedKeys)
			}
			t, err := stands[i].take(ctx, source.Template, keys)
			if err != nil {
				return nil, err
			}
			if round >= 0 {
				a.rows[i].timings = append(a.rows[i].timings, t)
			}
		}
	}
	return a, nil
}
