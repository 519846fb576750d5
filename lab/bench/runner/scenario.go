// Package runner measures scenarios. It starts a server for them, gives each contestant its turns,
// and keeps the figures.
package runner

import (
	"context"

	"github.com/idem-go/idem/lab/bench/result"
)

// Scenario is one measurement that several contestants take on the same server, in turns.
type Scenario struct {
	Name        string // in the results, and for -only
	Server      Spec
	Rounds      int          // turns of each contestant whose figures are compared; zero: one turn that is not compared
	AtOnce      int          // contestants that work at the same time, where no time is measured; zero: one
	Own         string       // the contestant that the others are compared with, beside the base
	Contestants []Contestant // the first is the base
}

// Contestant is one way to do the work of a scenario.
type Contestant struct {
	Name string
	Open func(ctx context.Context, s *Server) (Seat, error)
}

// Seat is a contestant on a database of its own.
type Seat interface {
	// Take measures one turn. It returns the same figures each time.
	Take(ctx context.Context) (result.Values, error)
	// Finish checks the effects of all turns. It returns the figures of all turns together.
	Finish(ctx context.Context) (result.Values, error)
	Close() error
}

// Once returns a contestant that is measured by a single call of measure.
func Once(name string, measure func(ctx context.Context, s *Server) (result.Values, error)) Contestant {
	return Contestant{name, func(_ context.Context, s *Server) (Seat, error) { return once{s, measure}, nil }}
}

type once struct {
	server  *Server
	measure func(context.Context, *Server) (result.Values, error)
}

func (o once) Take(ctx context.Context) (result.Values, error) { return o.measure(ctx, o.server) }
func (once) Finish(context.Context) (result.Values, error)     { return nil, nil }
func (once) Close() error                                      { return nil }
