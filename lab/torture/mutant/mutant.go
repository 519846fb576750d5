// Package mutant tests the torture. Each [Mutant] is the library with one promise broken on
// purpose. A run that does not find the violation shows a defect of the torture.
//
// The library contains no code for this. A mutant consists of edits of its source, which exist only
// during the build (go build -overlay). An edit names a declaration and the code to replace in it:
// a sequence of words of Go or SQL. If that code is not in the declaration exactly once,
// the mutant no longer applies and must be adapted. A declaration may move to another file, and the
// code may move within its declaration.
//
// make torture/mutants tries all mutants. make torture/sample tries one for each promise: the first
// of all mutants with the same first rule that is not Slow. CI runs half of the sample.
//
// To add a mutant:
//
//  1. Choose the list in the file that its promise belongs to (call.go, operation.go,
//     message.go) and add a Mutant: a Name, About in one line, and Edits, each with a declaration,
//     the code to replace, and the new code.
//  2. Faults are the faults of package fault that reveal it, none if duplicates alone do. Rules
//     are rules of package rule, of which a run must find one broken. Name the rules that the edit
//     breaks, not every rule that a run reports.
//  3. go test -short ./mutant checks that every edit applies and compiles. Run it after every
//     change of the library too.
//  4. go run . mutants -v -mutant NAME prints the rules that were found broken. A mutant that
//     survives needs another fault, a longer Duration, or a new rule: its name in rule/rule.go, its
//     check in package check, and a history that breaks it in check_test.go.
//  5. make generate adds the mutant to docs/evidence.md.
package mutant

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Mutant is the library with one promise broken.
type Mutant struct {
	Name  string
	About string
	Edits []Edit

	// Faults are the faults and legs that reveal it, if the workload alone does not.
	Faults []fault.Name
	// Settings are settings of the servers, name=value. A promise can also be broken by a setting.
	Settings []string
	// Rules are rules of the checker. A run must find at least one of them broken. A mutant that is
	// found only by another rule counts as not found.
	Rules []rule.Rule
	// Slow reports that finding the violation takes more than some seconds.
	Slow bool
	// Duration is the duration of the first run, 3 s by default.
	Duration time.Duration
}

// errStale is returned if an edit no longer applies because the library has changed.
var errStale = errors.New("the mutant no longer applies")

// Apply makes the edits in their order. It returns the changed files by their path from the root of
// the repository.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	edited := make(map[string]string)
	for _, e := range m.Edits {
		if err := e.apply(root, edited); err != nil {
			return nil, err
		}
	}
	return edited, nil
}

// Find returns the mutant with the name.
func Find(name string) (*Mutant, error) {
	all := All()
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		var names []string
		for _, m := range all {
			names = append(names, m.Name)
		}
		return nil, fmt.Errorf("no mutant %q; there are: %s", name, strings.Join(names, ", "))
	}
	return &all[i], nil
}

// faults returns the faults and legs of a run, in the form of the flag -only.
func (m *Mutant) faults() []fault.Name {
	if len(m.Faults) == 0 {
		return []fault.Name{fault.None}
	}
	return m.Faults
}

// All returns all mutants.
func All() []Mutant {
	return slices.Concat(claimMutants, commitMutants, fnMutants, memoryMutants, sealMutants, serverMutants, purgeMutants,
		operationMutants(), messageMutants(), fleetMutants)
}

// Sample returns one mutant for each promise whose violation is found quickly. These are the
// mutants that are not Slow and whose first rule is not the first rule of an earlier mutant.
func Sample() []Mutant {
	var sample []Mutant
	for _, m := range All() {
		known := func(s Mutant) bool { return s.Rules[0] == m.Rules[0] }
		if !m.Slow && !slices.ContainsFunc(sample, known) {
			sample = append(sample, m)
		}
	}
	return sample
}

// Conditions returns the first mutant for each distinct set of Faults, without its Settings. The
// unmodified library must pass under the conditions of each of them.
func Conditions(of []Mutant) []Mutant {
	var conditions []Mutant
	seen := make(map[string]bool)
	for _, m := range of {
		m.Settings = nil // the library must pass without them: a mutant such as no-fsync is only a setting
		if faults := fmt.Sprint(m.Faults); !seen[faults] {
			seen[faults] = true
			conditions = append(conditions, m)
		}
	}
	return conditions
}

// Build builds the torture with the mutant in place of the library, as a program in dir. module is
// the source directory of the torture. If m is nil, Build uses the library as it is.
func Build(ctx context.Context, module, dir string, m *Mutant) (program string, err error) {
	program = filepath.Join(dir, "torture-"+m.name())
	args := []string{"build", "-o", program}
	if m != nil {
		overlay, err := m.overlay(module, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = module
	var out bytes.Buffer
	build.Stdout, build.Stderr = &out, &out
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", m.name(), err, out.Bytes())
	}
	return program, nil
}

func (m *Mutant) name() string {
	if m == nil {
		return "unmutated"
	}
	return m.Name
}

// overlay writes the edited files and the overlay file for go build, and returns its path.
func (m *Mutant) overlay(module, dir string) (string, error) {
	root, err := filepath.Abs(filepath.Join(module, "..", ".."))
	if err != nil {
		return "", err
	}
	edited, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for path, source := range edited {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s", m.Name, len(replace), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, path)] = file
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, m.Name+".json")
	return overlay, os.WriteFile(overlay, encoded, 0o644)
}

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
	Seed   uint64      // the seed of the last run
	Took   time.Duration
	Report string // the report of the last run
}

// Try runs a program under the conditions of the mutant, with one seed after the other, until the
// mutant is caught: a run finds one of m.Rules broken. It returns the verdict of the last run.
func (m *Mutant) Try(ctx context.Context, program string, seeds []uint64) (*Verdict, error) {
	begin := time.Now()
	v := &Verdict{}
	duration := cmp.Or(m.Duration, 3*time.Second)
	for _, seed := range seeds {
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
