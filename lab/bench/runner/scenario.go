// Package runner measures scenarios: it starts a server, gives each contestant its turns, and
// collects the figures.
package runner

import (
	"context"

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
type Seat interface {
	// Take measures one turn. It must return the same set of figures each time.
	Take(ctx context.Context) (result.Values, error)
	// Finish checks the effects of all turns and returns the figures of all turns together.
	Finish(ctx context.Context) (result.Values, error)
	Close() error
}

// Once returns a contestant that calls measure in its only turn.
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
