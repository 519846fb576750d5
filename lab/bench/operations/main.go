// Command operations measures package operation beside what people use instead for work that calls out: reserve in Postgres,
// charge at a bank, confirm in Postgres. It prints what was measured and whether the bars were met.
//
//	make bench/operations                           everything, in five minutes, into docs/benchmarks/report.md
//	make bench/operations BENCH='-quick'            that it runs: these figures say nothing
//	make bench/operations BENCH='-only "idem|plain" -steps kills'  some of it, and nothing is written
//
// The servers are its own: a PostgreSQL with durable settings on the disk of temporary files, and a bank on the loopback interface.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

func main() {
	const name = "operations"
	if role := os.Getenv(workerRole); role != "" {
		sidebyside.Fail(name, work(role))
	}
	sidebyside.Main(name, steps, func(ctx context.Context, s *sidebyside.Server, o sidebyside.Options) (fmt.Stringer, error) {
		return measure(ctx, &server{s}, o)
	})
}

// chosen are the contestants that take part.
func chosen(o sidebyside.Options) ([]contestant.Contestant, error) {
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(contestant.All(), func(c contestant.Contestant) bool { return !only.MatchString(c.Name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no contestant has a name that %q matches", o.Only)
	}
	return all, nil
}

// measure runs everything on a server: the costs first, then the cells, and last the kills.
func measure(ctx context.Context, s *server, o sidebyside.Options) (*results, error) {
	contestants, err := chosen(o)
	if err != nil {
		return nil, err
	}
	r := newResults(o, contestants)
	r.Server, r.Flush = s.Described, s.Flush
	r.Took, err = sidebyside.Take(ctx, o, steps, s, r)
	return r, err
}

// steps are what is measured, in this order.
var steps = []sidebyside.Step[*server, *results]{
	{Name: "costs", Run: costs}, {Name: "cells", Run: cells}, {Name: "crowd", Run: crowd}, {Name: "kills", Run: kills},
}
