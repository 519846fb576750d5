package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
)

// config has the flags of the command line.
type config struct {
	duration   time.Duration
	seed       uint64
	ops        int
	together   int
	workers    int
	goroutines int
	keys       int
	keyLife    time.Duration
	database   string
	settings   list
	dir        string
	keep       bool
	only       list
}

// list is a flag that may be repeated and may have commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = append(*l, strings.Split(s, ",")...)
	return nil
}

func parse(args []string) (*config, error) {
	c := &config{}
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage); flags.PrintDefaults() }
	flags.DurationVar(&c.duration, "duration", 2*time.Minute, "how long to torture; starting servers and checking come on top")
	flags.Uint64Var(&c.seed, "seed", 0, "what to do follows from it (default: a random one, which is printed)")
	flags.IntVar(&c.ops, "ops", 0, "end the main leg after so many calls, if that is sooner (0: no limit)")
	flags.IntVar(&c.together, "together", 1, "legs at a time, each with workers and servers of its own")
	flags.IntVar(&c.workers, "workers", 4, "worker processes")
	flags.IntVar(&c.goroutines, "goroutines", 12, "calls at once, of each worker")
	flags.IntVar(&c.keys, "keys", 12, "keys in use at one time, in each of two scopes")
	flags.DurationVar(&c.keyLife, "key-life", time.Second, "how long a key is in use")
	flags.StringVar(&c.database, "database", "", "an empty `database` to use instead of servers of its own: no faults then")
	flags.Var(&c.settings, "setting", "a `setting` of the servers, name=value")
	flags.StringVar(&c.dir, "dir", "", "the `folder` for the files of the run (default: a temporary one, removed if all is well)")
	flags.BoolVar(&c.keep, "keep", false, "keep the files in any case")
	flags.Var(&c.only, "only", "the `faults` and legs to have, separated by commas, or none (default: all; torture faults lists them)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1 << 32)
	}
	if c.together < 1 || c.workers < 1 || c.workers > 100 || c.goroutines < 1 || c.keys < 1 || c.keyLife < time.Millisecond {
		return nil, errors.New("there has to be a leg, and a worker that makes calls with some key")
	}
	return c, nil
}

// mix returns the faults of the main leg, and whether there are any.
func (c *config) mix() (mix fault.Mix, any bool) {
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
	return name == fault.Fleet || slices.ContainsFunc(fault.Legs(), func(l fault.Leg) bool { return l.Name == name })
}

// longestScenario is the maximum duration of a scenario beside the main leg. The rest of a long run
// goes to the main leg.
const longestScenario = 20 * time.Minute

// legs returns the legs to run: the main leg and the scenarios that this machine supports. It fails
// if -only names a leg that this machine does not support.
func (c *config) legs() ([]*leg, error) {
	var scenarios []fault.Leg
	for _, l := range fault.Legs() {
		asked := slices.Contains(c.only, string(l.Name))
		switch {
		case c.database != "" || len(c.only) > 0 && !asked:
		case l.Possible == nil:
			scenarios = append(scenarios, l)
		case asked:
			return nil, fmt.Errorf("%s: %w", l.Name, l.Possible)
		default:
			fmt.Printf("not possible here: %s: %v\n", l.Name, l.Possible)
		}
	}
	withFleet := c.database == "" && slices.Contains(c.only, string(fault.Fleet))
	if err := impossible(fault.Fleet); withFleet && err != nil {
		return nil, fmt.Errorf("%s: %w", fault.Fleet, err)
	}
	beside := len(scenarios)
	if withFleet {
		beside++
	}
	_, faults := c.mix()
	hasMain := c.database != "" || faults || slices.Contains(c.only, string(fault.None))
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
