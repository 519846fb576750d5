package plan

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/optional"
)

// Session is one run of the benchmark.
type Session struct {
	Quick  bool
	Rounds int // of every cell; 0: as many as its pace says
	Seed   uint64
	Only   *regexp.Regexp                     // names of the steps that are to be taken, by everybody; nil: all
	Also   func(step, contestant string) bool // who else takes which step; nil: nobody
	Dir    string                             // an existing directory for the data, on the disk that is to be measured
	Say    func(format string, args ...any)

	results *result.Results
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
	s.results, s.servers = results, map[string]*arena.Server{}
	results.Pool = poolSize
	defer s.stop()
	legs := star(s.Quick, results.Machine.MemoryGB)
	steps := make([][]step, len(legs))
	for i, l := range legs {
		steps[i] = s.steps(l)
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

// seed is that of a step: the same whatever else is measured. All contestants of a cell get the same keys from it.
func (s *Session) seed(step string) uint64 {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", s.Seed, step)
	return hash.Sum64()
}

// takers are those of some contestants who take a step. Where anybody does, the first of them does too: it is the unit.
func (s *Session) takers(step string, who []contestant.Contestant) []contestant.Contestant {
	if s.Only == nil || s.Only.MatchString(step) {
		return who
	}
	needed := func(c contestant.Contestant) bool { return s.Also != nil && s.Also(step, c.Name) }
	if !slices.ContainsFunc(who, needed) {
		return nil
	}
	takers := who[:1:1]
	for _, c := range who[1:] {
		if needed(c) {
			takers = append(takers, c)
		}
	}
	return takers
}

// steps are what is to be measured on the leg.
func (s *Session) steps(l leg) []step {
	var steps []step
	add := func(name string, cost time.Duration, do func(context.Context, *arena.Lane) error) {
		steps = append(steps, step{name, cost, do})
	}
	for _, c := range l.cells {
		c = c.at(l.name)
		if c.who = s.takers(c.Name(), c.who); len(c.who) > 0 {
			add(c.Name(), s.pace(c).total(len(c.who)), func(ctx context.Context, lane *arena.Lane) error { return s.cell(ctx, lane, l, c) })
		}
	}
	for _, c := range l.profiles {
		if name := result.ProfileOf(c.Name); len(s.takers(name, []contestant.Contestant{c})) > 0 {
			add(name, 3*time.Second, func(ctx context.Context, lane *arena.Lane) error { return s.profile(ctx, lane, c) })
		}
	}
	for _, c := range l.storms {
		if name := result.StormOf(c.Name); len(s.takers(name, []contestant.Contestant{c})) > 0 {
			add(name, 5*time.Second, func(ctx context.Context, lane *arena.Lane) error { return s.storm(ctx, lane, c) })
		}
	}
	if l.growth != nil && len(s.takers(result.Growth, []contestant.Contestant{contestant.Idem()})) > 0 {
		cost := 30*time.Second + time.Duration(l.growth[len(l.growth)-1])*7*time.Microsecond
		add(result.Growth, cost, func(ctx context.Context, lane *arena.Lane) error { return s.growth(ctx, lane, l) })
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

// noteFailure notes why a step has no result. Contestants that lack the same program share one note.
func (s *Session) noteFailure(step string, err error) {
	missing, ok := errors.AsType[optional.MissingError](err)
	if !ok {
		s.note("%s: %v", step, err)
		return
	}
	if note := "contestants are left out: " + missing.Error(); !slices.Contains(s.results.Notes, note) {
		s.note("%s", note)
	}
}
