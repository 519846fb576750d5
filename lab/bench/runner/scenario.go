// Package runner measures scenarios. It starts a Postgres server, lets the contestants (the
// compared implementations) take turns, and collects their figures.
package runner

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idem/lab/bench/result"
)

// Scenario compares several contestants on the same server. They take turns: a turn is one
// measurement of one contestant.
type Scenario struct {
	Name        string // name of the scenario in the results, and for the flag -only
	Server      Spec
	Rounds      int          // number of turns of each contestant; 0 means one turn, without ratios to the base
	AtOnce      int          // number of contestants that take their turn at the same time; 0 means 1
	Contestants []Contestant // the first contestant is the base, with which the others are compared
}

// Contestant is one of the compared implementations of the work in a scenario.
type Contestant struct {
	Name string
	Open func(ctx context.Context, s *Server) (Seat, error)
}

// Seat is an open contestant, ready to work on its own database.
type Seat struct {
	// Take makes one measurement. It must return figures with the same names each time.
	Take func(ctx context.Context) (result.Values, error)
	// Finish is called after the last turn. It checks the effects of all turns and returns figures
	// about all turns together. It may be nil.
	Finish func(ctx context.Context) (result.Values, error)
	Close  func() error // may be nil
}

// Once returns a contestant that calls measure in each turn. It is meant for scenarios with a
// single turn.
func Once(name string, measure func(ctx context.Context, s *Server) (result.Values, error)) Contestant {
	return Contestant{name, func(_ context.Context, s *Server) (Seat, error) {
		return Seat{Take: func(ctx context.Context) (result.Values, error) { return measure(ctx, s) }}, nil
	}}
}

// Cleanups is a list of functions that close what a contestant has opened.
type Cleanups []func() error

// Add adds a function that Close calls.
func (c *Cleanups) Add(f func() error) { *c = append(*c, f) }

// Defer adds a function that Close calls and that cannot fail, or whose error does not matter.
func (c *Cleanups) Defer(f func()) { c.Add(func() error { f(); return nil }) }

// Close calls the added functions, the last added function first. It returns all their errors.
func (c *Cleanups) Close() (err error) {
	for _, f := range slices.Backward(*c) {
		err = errors.Join(err, f())
	}
	return err
}
