package mutant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Seeds are the seeds with which a mutant is tried, until it is caught. Each run is longer than the
// one before, because a busy machine makes fewer calls in the same time. The unmodified library
// must pass with the same seeds.
var Seeds = []uint64{1, 2, 3, 4}

// longer is the factor between the durations of two consecutive runs.
const longer = 3

// Verdict is the result of the runs of a program.
type Verdict struct {
	Caught bool
	Rules  []rule.Rule // rules that were found broken, each once
	Seed   uint64      // of the last run
	Took   time.Duration
	Report string // of the last run
}

// Try runs a program under the conditions of the mutant until it is caught: a run finds one of
// m.Rules broken. It returns the verdict of the last run.
func (m *Mutant) Try(ctx context.Context, program string) (*Verdict, error) {
	begin := time.Now()
	v := &Verdict{}
	duration := m.duration()
	for _, seed := range Seeds {
		v.Seed = seed
		if err := m.run(ctx, program, duration, v); err != nil {
			return v, err
		}
		duration *= longer
		v.Caught = slices.ContainsFunc(v.Rules, func(broken rule.Rule) bool { return slices.Contains(m.Rules, broken) })
		v.Took = time.Since(begin)
		if v.Caught {
			break
		}
	}
	return v, nil
}

// Once runs a program under the conditions of the mutant with one seed.
func (m *Mutant) Once(ctx context.Context, program string, seed uint64) (*Verdict, error) {
	begin := time.Now()
	v := &Verdict{Seed: seed}
	err := m.run(ctx, program, m.duration(), v)
	v.Caught, v.Took = len(v.Rules) > 0, time.Since(begin)
	return v, err
}

func (m *Mutant) run(ctx context.Context, program string, duration time.Duration, v *Verdict) error {
	dir, err := os.MkdirTemp("", "torture-mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"-dir", dir, "-keep", "-seed", fmt.Sprint(v.Seed), "-duration", duration.String()}
	for _, name := range m.faults() {
		args = append(args, "-only", string(name))
	}
	for _, setting := range m.Settings {
		args = append(args, "-setting", setting)
	}
	run := exec.CommandContext(ctx, program, args...)
	said, err := run.CombinedOutput()
	v.Report = string(said)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w\n%s", v.Seed, err, v.Report)
	}
	verdict, err := report.ReadVerdict(filepath.Join(dir, report.VerdictFile))
	for _, broken := range verdict.Broken {
		if !slices.Contains(v.Rules, broken) {
			v.Rules = append(v.Rules, broken)
		}
	}
	return err
}
