// Package runner measures scenarios: it starts a server, gives each contestant its turns, and
// collects the figures.
package runner

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idem/lab/bench/result"
)

// Scenario is a measurement that several contestants take in turns on the same server.
type Scenario struct {
	Name        string // name in the results and for -only
	Server      Spec
	Rounds      int          // number of turns to compare; 0 means one turn, not compared
	AtOnce      int          // simultaneous contestants, if no time is measured; 0 means 1
	Contestants []Contestant // the first is the base
}

// Contestant is one implementation of the work of a scenario.
type Contestant struct {
	Name string
	Open func(ctx context.Context, s *Server) (Seat, error)
}

// Seat is a contestant that is ready to work on its own database.
type Seat struct {
	// Take measures one turn. It must return the same set of figures each time.
	Take func(ctx context.Context) (result.Values, error)
	// Finish checks the effects of all turns and returns the figures of all turns together. It may
	// be nil.
	Finish func(ctx context.Context) (result.Values, error)
	Close  func() error // may be nil
}

// Once returns a contestant that calls measure in its only turn.
func Once(name string, measure func(ctx context.Context, s *Server) (result.Values, error)) Contestant {
	return Contestant{name, func(_ context.Context, s *Server) (Seat, error) {
		return Seat{Take: func(ctx context.Context) (result.Values, error) { return measure(ctx, s) }}, nil
	}}
}

// Cleanups close what a contestant has opened.
type Cleanups []func() error

// Add adds a function for Close.
func (c *Cleanups) Add(f func() error) { *c = append(*c, f) }

// Defer adds a function that cannot fail, or whose error does not matter.
func (c *Cleanups) Defer(f func()) { c.Add(func() error { f(); return nil }) }

// Close calls the functions, the last one first.
func (c *Cleanups) Close() (err error) {
	for _, f := range slices.Backward(*c) {
		err = errors.Join(err, f())
	}
	return err
}
