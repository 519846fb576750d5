// Command operations measures package operation beside what people use instead for work that calls out: reserve in Postgres,
// charge at a bank, confirm in Postgres. It prints what was measured and whether the bars were met.
//
//	make bench/operations                           everything, in five minutes, into docs/benchmarks.md
//	make bench/operations BENCH='-quick'            that it runs: these figures say nothing
//	make bench/operations BENCH='-only "idem|plain" -steps kills'  some of it, and nothing is written
//
// The servers are its own: a PostgreSQL with durable settings on the disk of temporary files, and a bank on the loopback interface.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/bench/operations/contestant"
)

type options struct {
	quick  bool
	only   string
	steps  string
	report string
	data   string
	seed   uint64
}

func main() {
	if role := os.Getenv(workerRole); role != "" {
		fmt.Fprintln(os.Stderr, "operations:", work(role))
		os.Exit(1)
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "as little as shows that it runs: the figures say nothing")
	flag.StringVar(&o.only, "only", "", "measure only contestants with a name that this `regexp` matches")
	flag.StringVar(&o.steps, "steps", "", "measure only steps with a name that this `regexp` matches: costs, cells, crowd, kills")
	flag.StringVar(&o.report, "report", "", "`file` to write the tables to, besides standard output")
	flag.StringVar(&o.data, "data", "", "existing `directory` on the disk that is to be measured (default: that of temporary files)")
	flag.Uint64Var(&o.seed, "seed", 1, "of the order of turns")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "operations:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	results, err := o.measure(ctx)
	if err != nil {
		return err
	}
	text := results.String()
	fmt.Print(text)
	if o.report == "" || o.only != "" || o.steps != "" || o.quick {
		return nil
	}
	return os.WriteFile(o.report, []byte(text), 0o644)
}

// chosen are the contestants that take part.
func (o options) chosen() ([]contestant.Contestant, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(contestant.All(), func(c contestant.Contestant) bool { return !only.MatchString(c.Name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no contestant has a name that %q matches", o.only)
	}
	return all, nil
}

// measure runs everything on a server of its own.
func (o options) measure(ctx context.Context) (r *results, err error) {
	contestants, err := o.chosen()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.data, "idem-operations-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		return nil, err
	}
	s, err := startServer(ctx, dir, o.quick)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return o.measureOn(ctx, s, contestants)
}

// measureOn runs everything on a server: the costs first, then the cells, and last the kills.
func (o options) measureOn(ctx context.Context, s *server, contestants []contestant.Contestant) (*results, error) {
	begin, r := time.Now(), newResults(o, contestants)
	r.Server = s.Described
	r.Flush = s.Flush
	p := planOf(o.quick)
	for _, step := range steps {
		if chosen, err := regexp.MatchString(o.steps, step.name); err != nil {
			return nil, err
		} else if !chosen {
			continue
		}
		if err := step.run(ctx, s, p, r); err != nil {
			return nil, err
		}
	}
	r.Took = time.Since(begin).Round(time.Second)
	return r, nil
}

// steps are what is measured, in this order.
var steps = []struct {
	name string
	run  func(context.Context, *server, plan, *results) error
}{{"costs", costs}, {"cells", cells}, {"crowd", crowd}, {"kills", kills}}

// say tells whoever waits how far it is.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, strings.TrimSuffix(format, "\n")+"\n", args...)
}
