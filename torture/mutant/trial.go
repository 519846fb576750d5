package mutant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Seeds are those that a mutant is tried with, one after the other until it is caught. The same seeds must find nothing
// wrong with the library as it is.
var Seeds = []uint64{1, 2, 3}

// Verdict is what runs of a program came to.
type Verdict struct {
	Caught bool
	Rules  []string // that were found broken, each once
	Seed   uint64   // of the last run
	Took   time.Duration
	Report string // of the last run
}

// Try runs a program under the conditions of a mutant until it is caught: until a run finds a rule broken that the mutant
// breaks.
func (m *Mutant) Try(ctx context.Context, program string) (*Verdict, error) {
	begin := time.Now()
	v := &Verdict{}
	for _, seed := range Seeds {
		v.Seed = seed
		if err := m.run(ctx, program, v); err != nil {
			return v, err
		}
		v.Caught = slices.ContainsFunc(v.Rules, func(rule string) bool { return slices.Contains(m.Rules, rule) })
		v.Took = time.Since(begin)
		if v.Caught {
			break
		}
	}
	return v, nil
}

// Once runs a program under the conditions of a mutant with one seed.
func (m *Mutant) Once(ctx context.Context, program string, seed uint64) (*Verdict, error) {
	begin := time.Now()
	v := &Verdict{Seed: seed}
	err := m.run(ctx, program, v)
	v.Caught, v.Took = len(v.Rules) > 0, time.Since(begin)
	return v, err
}

// notKept is how a report begins the line of a rule that is broken.
const notKept = "NOT KEPT: "

func (m *Mutant) run(ctx context.Context, program string, v *Verdict) error {
	dir, err := os.MkdirTemp("", "torture-mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"-dir", dir, "-seed", fmt.Sprint(v.Seed), "-duration", m.duration().String(), "-only", m.Faults}
	for _, setting := range m.Settings {
		args = append(args, "-setting", setting)
	}
	run := exec.CommandContext(ctx, program, args...)
	var out, stderr bytes.Buffer
	run.Stdout, run.Stderr = &out, &stderr
	err = run.Run()
	v.Report = out.String() + stderr.String()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w\n%s", v.Seed, err, v.Report)
	}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		if rule, ok := strings.CutPrefix(lines.Text(), notKept); ok && !slices.Contains(v.Rules, rule) {
			v.Rules = append(v.Rules, rule)
		}
	}
	return nil
}
