// Command bench measures idem beside what people use instead, on the same Postgres, with the same business, in the same
// rounds, and writes a report that says what was measured, how, and which goals were met.
//
//	go run . -quick                                      in under two minutes, without a report
//	go run . -only goal/replay                           one goal (goals are named in bench/goal)
//	go run . -report ../docs/benchmarks.md               everything, in about ten minutes
//	go run . -render -report ../docs/benchmarks.md       the report again, from the results of the last run
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/plan"
	"github.com/idem-go/idem/lab/bench/report"
	"github.com/idem-go/idem/lab/bench/result"
)

type options struct {
	quick, render         bool
	only                  string
	rounds                int
	seed                  uint64
	report, results, data string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer points, fewer and shorter rounds")
	flag.IntVar(&o.rounds, "rounds", 0, "how many `rounds`: as many as an undecided goal asks for (default: as many as each step needs)")
	flag.StringVar(&o.only, "only", "", "measure only what has a name that this `regexp` matches: a step such as ^replay or storm, or a goal such as goal/replay, with those alone whom it compares")
	flag.Uint64Var(&o.seed, "seed", 1, "of keys, responses and the order of turns")
	flag.StringVar(&o.report, "report", "", "`file` to write the report to; its plots go into a folder of the same name (default: no report)")
	flag.StringVar(&o.results, "results", "", "`file` with the results: written by a run, read by -render (default: results.json where there is a report, else none)")
	flag.BoolVar(&o.render, "render", false, "measure nothing, write the report from the results")
	flag.StringVar(&o.data, "data", "", "existing `directory` on the disk that is to be measured (default: that of temporary files)")
	flag.Parse()
	if o.results == "" && o.report != "" {
		o.results = "results.json"
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	results, err := o.obtain(ctx)
	if err != nil {
		return err
	}
	if o.report != "" {
		if err := results.ReadSections(o.results); err != nil {
			return err
		}
		if err := report.Write(o.report, results); err != nil {
			return err
		}
	}
	return report.Summary(os.Stdout, results)
}

// obtain returns the results of an earlier run, or of a new one. Those of a run that was cut short are kept beside.
func (o options) obtain(ctx context.Context) (*result.Results, error) {
	if o.render {
		return result.Read(o.results)
	}
	results, err := o.measure(ctx)
	switch {
	case results == nil || o.results == "":
		return results, err
	case err != nil:
		return nil, errors.Join(err, results.Write(partial(o.results)))
	}
	if err := os.Remove(partial(o.results)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return results, results.Write(o.results)
}

// partial is where the results of a run go that was cut short.
func partial(results string) string { return results + ".partial" }

func (o options) measure(ctx context.Context) (results *result.Results, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.data, "idem-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the servers run as another user
		return nil, err
	}
	session := &plan.Session{Quick: o.quick, Rounds: o.rounds, Seed: o.seed, Only: only, Also: goal.Needing(only), Dir: dir, Say: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}}
	begin := time.Now()
	results = &result.Results{Taken: begin.UTC().Truncate(time.Second), Command: command(), Quick: o.quick, Partial: o.only != "", Seed: o.seed}
	results.Describe()
	err = session.Run(ctx, results)
	results.Took = time.Since(begin).Round(time.Second).String()
	return results, err
}

// command is how this run can be repeated.
func command() string {
	return strings.Join(append([]string{"go run ."}, os.Args[1:]...), " ")
}
