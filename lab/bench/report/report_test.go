package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/bench/result"
)

// scenario returns results with one figure of some contestants.
func scenario(name, figure string, figures map[string]result.Spread) *result.Results {
	s := result.Scenario{Name: name}
	for who, spread := range figures {
		s.Entries = append(s.Entries, result.Entry{Name: who, Figures: result.Figures{figure: spread}})
	}
	return &result.Results{Runs: []result.Run{{Suite: "calls", Scenarios: []result.Scenario{s}}}}
}

func TestTable_HasARowForEachContestantWithAFigure(t *testing.T) {
	t.Parallel()
	r := scenario("s", "us/base", map[string]result.Spread{"a": {1.005, 0.5, 12}})
	r.Runs[0].Scenarios[0].Entries = append(r.Runs[0].Scenarios[0].Entries, result.Entry{Name: "failed", Error: "broken"})
	got, err := table(r, []string{"ratio|s|us/base", "other|none|us"})
	want := "| | ratio | other |\n|---|--:|--:|\n| a | 1.00 (0.50–12.00) | - |\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestNumber_KeepsWhatIsWorthReading(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0", 3: "3", 1.08: "1.08", 4.6: "4.6", 32.6: "32.6", 95: "95", 1034.2: "1,034", 20_000_000: "20,000,000"} {
		if got := number(value); got != want {
			t.Errorf("%v is written %s, want %s", value, got, want)
		}
	}
}

// The page in docs is made of the results, by this code, and short enough to be read.
func TestPage_IsThatOfTheResults(t *testing.T) {
	t.Parallel()
	r, err := result.Read("../results.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(r)
	if err != nil {
		t.Fatal(err)
	}
	const name = "docs/benchmarks.md"
	got, err := os.ReadFile(filepath.Join("../../..", name))
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is not that of the results: make bench/report (%v)", name, err)
	}
	if n, most := len(strings.Fields(string(want))), 3000; n > most {
		t.Errorf("%s has %d words, the limit is %d", name, n, most)
	}
	for _, unwanted := range []string{"NaN", "Inf", "<no value>", "%!", "Not measured yet"} {
		if strings.Contains(string(want), unwanted) {
			t.Errorf("%q is in %s", unwanted, name)
		}
	}
}
