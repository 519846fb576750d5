package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"sync"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/optional"
)

// Runner measures scenarios. Its fields select the scenarios and contestants.
type Runner struct {
	Only *regexp.Regexp // matches the names of the scenarios to run; nil means all scenarios
	Who  *regexp.Regexp // matches the names of the contestants to run besides the base; nil means all contestants
	Seed uint64         // seed for the order in which the contestants take turns
	Data string         // existing directory for the servers' data, on the measured disk; "" means the temporary directory
	Say  func(format string, args ...any)
}

// Run measures the scenarios that r.Only and r.Who select, and adds the results to run. A
// contestant that needs a program which is not installed is no error. If a contestant fails for
// another reason, Run continues with the others and returns the error at the end.
//
// Consecutive scenarios with the same Spec share a server.
func (r *Runner) Run(ctx context.Context, run *result.Run, scenarios []Scenario) (err error) {
	scenarios = r.wanted(scenarios)
	var server *Server
	defer func() {
		if server != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	for i, sc := range scenarios {
		if server == nil || server.Spec != sc.Server {
			if server != nil {
				if err := server.Close(); err != nil {
					return err
				}
			}
			if server, err = StartServer(ctx, r.Data, sc.Server); err != nil {
				return fmt.Errorf("%s: %w", sc.Name, err)
			}
			run.Servers = append(run.Servers, server.Described)
		}
		r.Say("%d of %d  %s", i+1, len(scenarios), sc.Name)
		measured, failed := r.Measure(ctx, server, sc)
		run.Scenarios = append(run.Scenarios, measured)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, failed)
	}
	return err
}

// wanted returns the scenarios that r.Only selects, with the contestants that r.Who selects.
func (r *Runner) wanted(all []Scenario) (wanted []Scenario) {
	for _, sc := range all {
		if r.Only != nil && !r.Only.MatchString(sc.Name) {
			continue
		}
		if r.Who != nil {
			base := sc.Contestants[0].Name
			sc.Contestants = slices.DeleteFunc(slices.Clone(sc.Contestants), func(c Contestant) bool {
				return c.Name != base && !r.Who.MatchString(c.Name)
			})
		}
		wanted = append(wanted, sc)
	}
	return wanted
}

// seat is the state of a contestant while a scenario is measured.
type seat struct {
	Contestant
	open   Seat
	rounds map[string][]float64
	err    error
}

// Measure lets each contestant take one turn in each round, in a random order. A short disturbance
// of the machine therefore affects all contestants alike. A contestant that fails gets no more
// turns.
func (r *Runner) Measure(ctx context.Context, s *Server, sc Scenario) (result.Scenario, error) {
	seats := make([]*seat, len(sc.Contestants))
	for i, c := range sc.Contestants {
		seats[i] = &seat{Contestant: c, rounds: map[string][]float64{}}
		seats[i].open, seats[i].err = c.Open(ctx, s)
	}
	random := rand.New(rand.NewPCG(r.Seed, SeedOf(r.Seed, sc.Name)))
	for range max(1, sc.Rounds) {
		turns := make(chan struct{}, max(1, sc.AtOnce))
		var group sync.WaitGroup
		for _, i := range random.Perm(len(seats)) {
			turns <- struct{}{}
			group.Go(func() {
				seats[i].take(ctx)
				<-turns
			})
		}
		group.Wait()
	}
	measured := result.Scenario{Name: sc.Name, Base: seats[0].Name}
	var failed error
	for _, each := range seats {
		e := each.entry(ctx, sc, seats)
		if _, missing := errors.AsType[optional.MissingError](each.err); each.err != nil && !missing {
			failed = errors.Join(failed, fmt.Errorf("%s: %s: %w", sc.Name, each.Name, each.err))
		}
		r.Say("    %-60s %s", e.Name, e.Summary())
		measured.Entries = append(measured.Entries, e)
	}
	return measured, failed
}

// take measures the contestant once and stores the values. After an error it does nothing.
func (s *seat) take(ctx context.Context) {
	if s.err != nil || ctx.Err() != nil {
		return
	}
	runtime.GC() // collect the garbage of the previous contestant
	values, err := s.open.Take(ctx)
	for name, value := range values {
		if err == nil && (math.IsNaN(value) || math.IsInf(value, 0)) {
			err = fmt.Errorf("%s was not measured: the turn made no call", name)
		}
		s.rounds[name] = append(s.rounds[name], value)
	}
	s.err = err
}

// entry calls Finish and Close of the contestant and returns its figures, or its error.
func (s *seat) entry(ctx context.Context, sc Scenario, all []*seat) result.Entry {
	e := result.Entry{Name: s.Name, Figures: result.Figures{}}
	if s.err == nil {
		e.Figures, s.err = s.figures(ctx, sc, all)
	}
	if s.open.Close != nil {
		s.err = errors.Join(s.err, s.open.Close())
	}
	if s.err != nil {
		e.Error = s.err.Error()
	}
	return e
}

// figures returns the median, minimum and maximum of each value. In scenarios with rounds, it adds
// the ratio of each value to the value of the base ("/base"). Ratios are computed for each round,
// so that a change in the speed of the machine does not affect them.
func (s *seat) figures(ctx context.Context, sc Scenario, all []*seat) (result.Figures, error) {
	figures := result.Figures{}
	for name, values := range s.rounds {
		if sc.Rounds == 0 {
			figures[name] = result.One(values[0])
			continue
		}
		figures[name] = result.SpreadOf(values)
		if base := all[0].rounds[name]; len(base) == len(values) {
			figures[name+"/base"] = result.SpreadOf(result.Ratios(values, base))
		}
	}
	if s.open.Finish == nil {
		return figures, nil
	}
	together, err := s.open.Finish(ctx)
	for name, value := range together {
		figures[name] = result.One(value)
	}
	return figures, err
}

// SeedOf derives a seed from seed and a name, such as the name of a scenario. The result does not
// depend on which other scenarios are measured.
func SeedOf(seed uint64, name string) uint64 {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", seed, name)
	return hash.Sum64()
}
