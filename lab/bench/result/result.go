// Package result stores the figures of the last run of each suite in a file.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Results contains the last run of each suite.
type Results struct {
	Runs []Run `json:"runs"`
}

// Run is one run of a suite.
type Run struct {
	Suite     string     `json:"suite"`
	Taken     time.Time  `json:"taken"`
	Took      string     `json:"took"`
	Machine   string     `json:"machine"`
	Load      string     `json:"load"`             // load average of the machine before the run
	Commit    string     `json:"commit,omitempty"` // commit of this repository that was measured
	Versions  string     `json:"versions"`
	Servers   []string   `json:"servers"`
	Scenarios []Scenario `json:"scenarios,omitempty"`
}

// Scenario contains the results of one scenario, with an entry for each contestant.
type Scenario struct {
	Name    string  `json:"name"`
	Base    string  `json:"base"` // the figures with the suffix /base are ratios to the figures of this contestant
	Entries []Entry `json:"entries,omitempty"`
}

// Entry contains the figures of one contestant in a scenario.
type Entry struct {
	Name    string  `json:"name"`
	Figures Figures `json:"figures,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Values contains the figures of one measurement of a contestant by name.
type Values map[string]float64

// Figures contains the figures of a contestant in a scenario by name. A figure whose name has the
// suffix "/base" is the ratio of this contestant to the base of the scenario. In a scenario with
// rounds, each round gives one value and one ratio, and the Spread of a figure covers all rounds.
type Figures map[string]Spread

// Spread is a single value, or the median, minimum and maximum of several values.
type Spread []float64

// One returns the spread of a single value.
func One(value float64) Spread { return Spread{rounded(value)} }

// SpreadOf returns the median, minimum and maximum of values.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{rounded(median), rounded(sorted[0]), rounded(sorted[len(sorted)-1])}
}

// Ratios divides the values of two contestants, round by round. If the machine becomes slower, both
// values of a round change and the ratio does not.
func Ratios(of, to []float64) (ratios []float64) {
	for i := range min(len(of), len(to)) {
		ratios = append(ratios, of[i]/to[i])
	}
	return ratios
}

// rounded rounds a value for the results file: to five decimals below 10, to two decimals below
// 1,000, and to an integer from 1,000 on.
func rounded(value float64) float64 {
	scale := 1.0
	switch size := math.Abs(value); {
	case size < 10:
		scale = 100_000
	case size < 1000:
		scale = 100
	}
	return math.Round(value*scale) / scale
}

// Summary returns the figures of the entry, without the ratios, in one line.
func (e Entry) Summary() string {
	if e.Error != "" {
		return "FAILED: " + e.Error
	}
	var all []string
	for name, spread := range e.Figures {
		if !strings.Contains(name, "/") {
			all = append(all, fmt.Sprintf("%s %v", name, spread[0]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Scenario returns a scenario by name, or nil if no run contains it.
func (r *Results) Scenario(name string) *Scenario {
	for i := range r.Runs {
		for k := range r.Runs[i].Scenarios {
			if s := &r.Runs[i].Scenarios[k]; s.Name == name {
				return s
			}
		}
	}
	return nil
}

// Run returns the run of a suite, or nil if there is none.
func (r *Results) Run(suite string) *Run {
	at := slices.IndexFunc(r.Runs, func(run Run) bool { return run.Suite == suite })
	if at < 0 {
		return nil
	}
	return &r.Runs[at]
}

// Figure returns a figure of a contestant, or nil if it was not measured.
func (s *Scenario) Figure(contestant, figure string) Spread {
	if s == nil {
		return nil
	}
	for _, e := range s.Entries {
		if e.Name == contestant && e.Error == "" {
			return e.Figures[figure]
		}
	}
	return nil
}

// Put adds a run. It replaces the earlier run of the same suite, if there is one.
func (r *Results) Put(run Run) {
	if earlier := r.Run(run.Suite); earlier != nil {
		*earlier = run
		return
	}
	r.Runs = append(r.Runs, run)
}

// Read reads the results from a file. If the file does not exist, Read returns empty results.
func Read(path string) (*Results, error) {
	var r Results
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return &r, err
}

// Write writes the results to a file, with one entry per line, so that a diff of two runs is
// readable.
func (r *Results) Write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lines := strings.ReplaceAll(string(text), `{"name":`, "\n"+`{"name":`)
	return os.WriteFile(path, []byte(lines+"\n"), 0o644)
}
