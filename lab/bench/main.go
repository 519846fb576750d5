// Command bench compares idem with its alternatives. It measures all of them on the same Postgres
// server and in alternation.
//
//	go run . calls                                      measures a suite: calls, profile, operations or messages
//	go run . -quick -only replay -who textbook calls    some scenarios, with some contestants
//	go run . -write operations                          stores the results of a whole run in results.json
//	go run . -render                                    writes docs/benchmarks.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/bench/calls"
	"github.com/idem-go/idem/lab/bench/messages"
	"github.com/idem-go/idem/lab/bench/operations"
	"github.com/idem-go/idem/lab/bench/report"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

const resultsFile = "results.json"

// suite is a named group of scenarios that are measured together.
type suite struct {
	scenarios func(quick bool, seed uint64) []runner.Scenario
	modules   []string // modules whose versions are stored with the results
}

var suites = map[string]suite{
	"calls":      {calls.Scenarios, calls.Modules},
	"profile":    {calls.Profile, calls.Modules},
	"operations": {operations.Scenarios, operations.Modules},
	"messages":   {messages.Scenarios, messages.Modules},
}

type options struct {
	quick, write, render bool
	only, who, data      string
	seed                 uint64
}

func main() {
	operations.Work()
	messages.Work()
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer, shorter rounds")
	flag.StringVar(&o.only, "only", "", "measure only scenarios with a name that this `regexp` matches")
	flag.StringVar(&o.who, "who", "", "measure only contestants with a name that this `regexp` matches, beside the base of each scenario")
	flag.Uint64Var(&o.seed, "seed", 1, "of keys, responses and the order of turns")
	flag.StringVar(&o.data, "data", "", "existing `directory` on the disk that is measured (default: that of temporary files)")
	flag.BoolVar(&o.write, "write", false, "keep the results of a whole run, and write the reports")
	flag.BoolVar(&o.render, "render", false, "measure nothing, and write the reports from the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, names []string) error {
	if len(names) == 0 && !o.render {
		return errors.New("name a suite: calls, profile, operations or messages")
	}
	if o.write && (o.quick || o.only != "" || o.who != "") {
		return errors.New("-write keeps whole runs only: leave out -quick, -only and -who")
	}
	results, err := result.Read(resultsFile)
	if err != nil {
		return err
	}
	for _, name := range names {
		run, err := o.measure(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !o.write {
			continue
		}
		results.Put(run)
		if err := results.Write(resultsFile); err != nil {
			return err
		}
	}
	if !o.write && !o.render {
		return nil
	}
	return report.Write("../../docs", results)
}

func (o options) measure(ctx context.Context, name string) (result.Run, error) {
	chosen, ok := suites[name]
	if !ok {
		return result.Run{}, errors.New("there is no such suite: use calls, profile, operations or messages")
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return result.Run{}, err
	}
	who, err := regexp.Compile(o.who)
	if err != nil {
		return result.Run{}, err
	}
	r := runner.Runner{Only: only, Who: who, Seed: o.seed, Data: o.data, Say: func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
	}}
	run := runner.NewRun(name, chosen.modules...)
	err = r.Run(ctx, &run, chosen.scenarios(o.quick, o.seed))
	run.Took = time.Since(run.Taken).Round(time.Second).String()
	return run, err
}
