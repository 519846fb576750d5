package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/idem-go/idem/bench/arena"
	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/result"
)

// Session is one run of the benchmark.
type Session struct {
	Quick bool
	Seed  uint64
	Only  *regexp.Regexp // names of what is to be measured; nil: all
	Dir   string         // an existing directory for the data, on the disk that is to be measured
	Say   func(format string, args ...any)

	results *result.Results
	random  *rand.Rand
	servers map[string]*arena.Server
	clock   clock
}

// Pools have room for 32 clients and for what a contestant does beside them. During storms they are small, as where a
// storm hurts.
const (
	poolSize      = 40
	stormPoolSize = 16
)

// step is what a leg does in one go.
type step struct {
	name string
	cost time.Duration // as planned
	do   func(context.Context, *arena.Lane) error
}

// Run measures everything into results.
func (s *Session) Run(ctx context.Context, results *result.Results) error {
	s.results, s.random, s.servers = results, rand.New(rand.NewPCG(s.Seed, 0)), map[string]*arena.Server{}
	results.Pool = poolSize
	defer s.stop()
	legs := star(s.Quick, results.Machine.MemoryGB)
	steps := make([][]step, len(legs))
	for i, l := range legs {
		steps[i] = s.chosen(s.steps(l))
		for _, each := range steps[i] {
			s.clock.add(each.cost)
		}
	}
	for i, l := range legs {
		if len(steps[i]) == 0 {
			continue
		}
		if err := s.walk(ctx, l, steps[i]); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if i+1 == len(legs) || legs[i+1].server.Name != l.server.Name {
			s.stop()
		}
	}
	return nil
}

func (s *Session) chosen(steps []step) []step {
	var chosen []step
	for _, each := range steps {
		if s.Only == nil || s.Only.MatchString(each.name) {
			chosen = append(chosen, each)
		}
	}
	return chosen
}

// steps are what the leg consists of.
func (s *Session) steps(l leg) []step {
	var steps []step
	for _, c := range l.cells {
		steps = append(steps, step{c.name(l), s.pace(c).total(len(c.who)), func(ctx context.Context, lane *arena.Lane) error {
			return s.cell(ctx, lane, l, c)
		}})
	}
	if l.profiles {
		for _, c := range contestant.All() {
			steps = append(steps, step{"profile/" + c.Name, 3 * time.Second, func(ctx context.Context, lane *arena.Lane) error {
				return s.profile(ctx, lane, c)
			}})
		}
	}
	for _, c := range l.storms {
		steps = append(steps, step{"storm/" + c.Name, 5 * time.Second, func(ctx context.Context, lane *arena.Lane) error {
			return s.storm(ctx, lane, c)
		}})
	}
	if l.growth != nil {
		steps = append(steps, step{"growth", 30*time.Second + time.Duration(l.growth[len(l.growth)-1])*7*time.Microsecond, func(ctx context.Context, lane *arena.Lane) error {
			return s.growth(ctx, lane, l)
		}})
	}
	return steps
}

// walk opens the leg's lane and takes its steps.
func (s *Session) walk(ctx context.Context, l leg, steps []step) error {
	server, err := s.server(ctx, l.server)
	if errors.Is(err, arena.ErrAbsent) {
		s.note("%s was left out: %v", l.name, err)
		for _, each := range steps {
			s.clock.skip(each.cost)
		}
		return nil
	}
	if err != nil {
		return err
	}
	lane, err := arena.NewLane(server, l.rtt, false, poolSize)
	if err != nil {
		return err
	}
	for _, each := range steps {
		s.Say("%s  %s", s.clock.left(), each.name)
		begin := time.Now()
		if err := each.do(ctx, lane); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", each.name, err), lane.Close())
		}
		s.clock.took(each.cost, time.Since(begin))
	}
	return lane.Close()
}

// server starts a server, or returns the one that runs.
func (s *Session) server(ctx context.Context, spec arena.Spec) (*arena.Server, error) {
	if server := s.servers[spec.Name]; server != nil {
		return server, nil
	}
	server, err := arena.StartServer(ctx, s.Dir, spec)
	if err != nil {
		return nil, err
	}
	s.servers[spec.Name] = server
	flush, err := server.Flush(ctx)
	s.results.Servers = append(s.results.Servers, result.Server{
		Name: spec.Name, Version: server.Version, From: server.From, Settings: spec.Settings(), FlushUS: float64(flush.Microseconds()),
	})
	return server, err
}

func (s *Session) stop() {
	for name, server := range s.servers {
		if err := server.Close(); err != nil {
			s.note("stopping %s: %v", name, err)
		}
		delete(s.servers, name)
	}
}

// note says what the reader of the report should know.
func (s *Session) note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	s.Say("       note: %s", note)
	s.results.Notes = append(s.results.Notes, note)
}
