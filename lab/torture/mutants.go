package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/mutant"
)

// mutants executes the command "torture mutants".
func mutants(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("torture mutants", flag.ContinueOnError)
	t := trials{}
	flags.StringVar(&t.module, "source", ".", "the folder of this program's source")
	only := flags.String("mutant", "", "the `name` of the only one to try")
	sample := flags.Bool("sample", false, "try one for each promise, and not the library as it is")
	half := flags.Int("half", -1, "with -sample, try only the `first` and every second after it: 0 or 1")
	jobs := flags.Int("jobs", 2, "how many to try at a time")
	flags.BoolVar(&t.verbose, "v", false, "print the reports")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := mutant.All()
	switch {
	case *only != "":
		m, err := mutant.Find(*only)
		if err != nil {
			return err
		}
		chosen = []mutant.Mutant{*m}
	case *sample:
		chosen = mutant.Sample()
		if *half >= 0 {
			chosen = everySecond(chosen, *half%2)
		}
	}
	if _, err := optional.Find("postgres"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "torture-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t.dir = dir
	tasks := t.ofMutants(ctx, chosen)
	if *only == "" && !*sample {
		unmutated, err := t.ofLibrary(ctx, chosen)
		if err != nil {
			return err
		}
		tasks = append(tasks, unmutated...)
	}
	return inParallel(max(*jobs, 1), tasks)
}

func everySecond(mutants []mutant.Mutant, first int) (chosen []mutant.Mutant) {
	for i := first; i < len(mutants); i += 2 {
		chosen = append(chosen, mutants[i])
	}
	return chosen
}

// trials is the state of the command "mutants".
type trials struct {
	module, dir string
	verbose     bool

	mu sync.Mutex // guards the output
}

// errSurvived reports that no run detected a mutant.
var errSurvived = errors.New("the torture has to be mended: not found out")

func (t *trials) ofMutants(ctx context.Context, chosen []mutant.Mutant) []func() error {
	var tasks []func() error
	for _, m := range chosen {
		if impossible := possible(m.Faults); impossible != nil {
			fmt.Printf("%-24s not possible here: %v\n", m.Name, impossible)
			continue
		}
		tasks = append(tasks, func() error {
			program, err := mutant.Build(ctx, t.module, t.dir, &m)
			if err != nil {
				return err
			}
			defer os.Remove(program)
			verdict, err := m.Try(ctx, program, mutant.Seeds)
			if err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			how := "caught"
			if !verdict.Caught {
				how, err = "SURVIVED", fmt.Errorf("%w: %s", errSurvived, m.Name)
			}
			t.tell(m.Name, how, m.About, verdict)
			return err
		})
	}
	return tasks
}

// ofLibrary returns runs of the unmodified library under the conditions of the mutants. The library
// must pass the checks that catch mutants.
func (t *trials) ofLibrary(ctx context.Context, chosen []mutant.Mutant) ([]func() error, error) {
	program, err := mutant.Build(ctx, t.module, t.dir, nil)
	if err != nil {
		return nil, err
	}
	var tasks []func() error
	for _, m := range mutant.Conditions(chosen) {
		if possible(m.Faults) != nil {
			continue
		}
		tasks = append(tasks, func() error {
			verdict, err := m.Try(ctx, program, mutant.Seeds[:1])
			if err != nil {
				return fmt.Errorf("the library as it is, %v: %w", m.Faults, err)
			}
			how := "passed"
			if len(verdict.Rules) > 0 {
				how, err = "FAILED", fmt.Errorf("the library as it is breaks %q\n%s", verdict.Rules, verdict.Report)
			}
			t.tell("(none)", how, fmt.Sprintf("the library as it is, with the faults %v", m.Faults), verdict)
			return err
		})
	}
	return tasks, nil
}

func (t *trials) tell(name, how, about string, verdict *mutant.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verbose {
		fmt.Println(verdict.Report)
	}
	fmt.Printf("%-24s %-9s %5.1f s  %s\n", name, how, verdict.Took.Seconds(), about)
	for _, rule := range verdict.Rules {
		fmt.Printf("%44s%s\n", "", rule)
	}
}

// possible returns nil, or the reason why this machine cannot run a leg that the list names. It
// ignores the names of single faults in the list.
func possible(faults []fault.Name) error {
	for _, name := range faults {
		if err := impossible(name); err != nil {
			return err
		}
	}
	return nil
}

// inParallel runs all tasks, with the given number of jobs at a time, and joins their errors.
func inParallel(jobs int, tasks []func() error) error {
	errs := make([]error, len(tasks))
	var group errgroup.Group
	group.SetLimit(jobs)
	for i, task := range tasks {
		group.Go(func() error { errs[i] = task(); return nil })
	}
	_ = group.Wait()
	return errors.Join(errs...)
}
