// Command torture tests the promises of idem under faults. Worker processes make calls while faults
// are injected. Afterwards a checker, which shares no code with the library, decides whether the
// answers of the calls were true.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/workload"
)

const usage = `torture [run] [flags]     torture the library, and check the results
torture mutants [flags]   check that broken libraries are detected
torture worker            started by run; not for people

It exits with 1 if a promise was not kept, with 2 if the run itself did not work, or a leg of it.

flags:`

func main() {
	err := command(os.Args[1:])
	code := exitCode(err)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "torture: interrupted")
	case code > 1:
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	os.Exit(code)
}

func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, report.ErrNotKept):
		return 1
	}
	return 2
}

func command(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := "run"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	switch name {
	case "run":
		return run(ctx, args)
	case "mutants":
		return mutants(ctx, args)
	case "worker":
		stop() // a worker handles signals itself
		return workload.Work(os.Stdin)
	}
	return fmt.Errorf("no command %q; see torture -help", name)
}

// flags has the flags of the command line.
type flags struct {
	duration   time.Duration
	seed       uint64
	together   int
	workers    int
	goroutines int
	keys       int
	settings   []string
	dir        string
	keep       bool
	only       []string
}

func parse(args []string) (*flags, error) {
	c := &flags{}
	set := flag.NewFlagSet("torture", flag.ContinueOnError)
	set.Usage = func() { fmt.Fprintln(os.Stderr, usage); set.PrintDefaults() }
	set.DurationVar(&c.duration, "duration", 2*time.Minute, "how long to torture; starting servers and checking come on top")
	set.Uint64Var(&c.seed, "seed", 0, "what to do follows from it (default: a random one, which is printed)")
	set.IntVar(&c.together, "together", 1, "legs at a time, each with workers and servers of its own")
	set.IntVar(&c.workers, "workers", 4, "worker processes")
	set.IntVar(&c.goroutines, "goroutines", 12, "calls at once, of each worker")
	set.IntVar(&c.keys, "keys", 12, "keys in use at one time, in each of two scopes")
	list := func(to *[]string) func(string) error { // a list flag may be repeated, and a value may be several with commas between
		return func(s string) error {
			*to = append(*to, strings.Split(s, ",")...)
			return nil
		}
	}
	set.Func("setting", "a `setting` of the servers, name=value", list(&c.settings))
	set.StringVar(&c.dir, "dir", "", "the `folder` for the files of the run (default: a temporary one, removed if all is well)")
	set.BoolVar(&c.keep, "keep", false, "keep the files in any case")
	set.Func("only", "the `faults` and legs to have, separated by commas, or none (default: all)", list(&c.only))
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1 << 32)
	}
	if c.together < 1 || c.workers < 1 || c.workers > 100 || c.goroutines < 1 || c.keys < 1 {
		return nil, errors.New("there has to be a leg, and a worker that makes calls with some key")
	}
	return c, nil
}

// mix returns the faults of the main leg, and whether there are any.
func (c *flags) mix() (mix fault.Mix, any bool) {
	mix.Pause = 300 * time.Millisecond
	if len(c.only) == 0 {
		return mix, true
	}
	for _, name := range c.only {
		if name := fault.Name(name); name != fault.None && !isLeg(name) {
			mix.Only = append(mix.Only, name)
		}
	}
	return mix, len(mix.Only) > 0
}

func isLeg(name fault.Name) bool {
	return name == fault.Fleet || slices.ContainsFunc(fault.Legs(0), func(l fault.Leg) bool { return l.Name == name })
}

// longestScenario is the maximum duration of a scenario beside the main leg. The rest of a long run
// goes to the main leg.
const longestScenario = 20 * time.Minute

// legs returns the legs to run: the main leg and the scenarios that this machine supports. It fails
// if -only names a leg that this machine does not support.
func (c *flags) legs() ([]*leg, error) {
	_, faults := c.mix()
	hasMain := faults || slices.Contains(c.only, string(fault.None))
	longest := c.duration
	if hasMain {
		longest = min(longest, longestScenario)
	}
	var scenarios []fault.Leg
	for _, l := range fault.Legs(longest) {
		asked := slices.Contains(c.only, string(l.Name))
		switch {
		case len(c.only) > 0 && !asked:
		case l.Possible == nil:
			scenarios = append(scenarios, l)
		case asked:
			return nil, fmt.Errorf("%s: %w", l.Name, l.Possible)
		default:
			fmt.Printf("not possible here: %s: %v\n", l.Name, l.Possible)
		}
	}
	withFleet := slices.Contains(c.only, string(fault.Fleet))
	if err := impossible(fault.Fleet); withFleet && err != nil {
		return nil, fmt.Errorf("%s: %w", fault.Fleet, err)
	}
	beside := len(scenarios)
	if withFleet {
		beside++
	}
	each := c.duration
	if hasMain {
		each = min(max(c.duration/20, 4*time.Second), longestScenario)
	} else if beside > 0 {
		each = c.duration / time.Duration(beside)
	}
	var legs []*leg
	if hasMain {
		rest := c.duration - each*time.Duration(beside)
		legs = append(legs, c.mainLeg(max(rest, c.duration/4)))
	}
	for _, s := range scenarios {
		legs = append(legs, c.scenario(s, each))
	}
	if withFleet {
		legs = append(legs, c.fleetLeg(each))
	}
	return legs, nil
}
