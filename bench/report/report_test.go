package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/result"
)

// entry is one whose rounds took so many microseconds, by one caller.
func entry(name string, p50s ...float64) result.Entry {
	e := result.Entry{Name: name, Ops: 10, P50: p50s[0], P99: 2 * p50s[0], Executed: 10, Requests: 10}
	for _, p50 := range p50s {
		e.Rounds = append(e.Rounds, result.Round{Ops: 5, P50: p50, PerSecond: 1e6 / p50})
	}
	return e
}

func cell(name string, entries ...result.Entry) result.Cell {
	return result.Cell{Name: name, Unit: entries[0].Name, Entries: entries, Setting: result.Setting{
		Server: "base", RTT: "loopback", Fsync: "as it is", Clients: 1, Work: "first", Business: "insert", Response: 200,
	}}
}

var (
	plain, idem = contestant.Plain().Name, contestant.Idem().Name
	phases      = contestant.Phases().Name
)

// fixture is a run in which every goal was measured somewhere.
func fixture() *result.Results {
	return &result.Results{
		Taken: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Took: "10m0s", Command: "go run .", Seed: 1, Pool: 40,
		Machine:  result.Machine{OS: "Debian", Kernel: "Linux", CPU: "CPU", Cores: 2, MemoryGB: 16},
		Versions: map[string]string{"go": "1.26"},
		Servers:  []result.Server{{Name: "base", Version: "15.1", Settings: []string{"a=b"}, FlushUS: 50}},
		Cells: []result.Cell{
			cell("first/insert/loopback/1", entry(plain, 100, 100, 100), entry(idem, 150, 160, 170)),
			cell("first/insert/rtt/1", entry(plain, 1000, 2000, 1000), entry(idem, 1040, 2100, 1030)),
			cell("first/realistic/rtt/1", entry(plain, 1000, 1000, 1000), entry(idem, 1060, 1060, 1000)),
			cell("first/realistic/loopback/8", entry(plain, 80, 80, 80), entry(idem, 100, 100, 100), entry(phases, 200, 200, 200)),
			cell("first/realistic/flush/8", entry(plain, 100, 100, 100), entry(idem, 100, 100, 100), entry(phases, 190, 190, 190), entry(contestant.Fiber().Name, 170, 170, 170)),
			cell("replay/insert/loopback/1", entry(contestant.Lookup().Name, 50, 50, 50), entry(idem, 60, 60, 55)),
			cell("first/insert/grown/1", entry("10,000 records", 100, 100, 100), entry("1,000,000 records", 109, 111, 109)),
			cell("replay/insert/grown/1", entry("10,000 records", 100, 100, 100), entry("1,000,000 records", 115, 112, 111)),
		},
		Profiles: []result.Profile{
			{Name: plain, WAL: result.Pair{First: 200}, Trips: result.Trips{Insert: 3, Realistic: 7}},
			{Name: idem, WAL: result.Pair{First: 760, Replay: 0}, Trips: result.Trips{Insert: 3, Realistic: 7, Replay: 2}, Storage: 1234},
			{Name: contestant.SelectInsert().Name, Duplicates: result.Duplicates{Races: 10, Executed: 99}},
		},
		Storms: []result.Storm{{Name: idem, Storms: 2, Calm: []float64{1000, 1000}, Stormy: []float64{1400, 1700}, CalmP99: 1000, StormP99: 1600, Settled: 201}},
		Notes:  []string{"pg18 was left out: none"},
	}
}

func TestGoalsAreJudgedByTheMedianOfTheRounds(t *testing.T) {
	t.Parallel()
	var got []string
	for _, j := range judge(fixture()) {
		if j.Verdict != absent {
			got = append(got, strings.Join([]string{strings.SplitN(j.Goal, ":", 2)[0], j.Where, j.Measured, j.Verdict}, " | "))
		}
	}
	want := []string{
		"first run at 1 ms of round-trip time | one insert, 1 client | 1.040 (1.030 to 1.050) | met",
		"first run at 1 ms of round-trip time | realistic, 1 client | 1.060 (1.000 to 1.060) | missed",
		"realistic write on loopback | 8 clients | 0.800 (0.800 to 0.800) | met",
		"flush 1 ms slower | realistic, 8 clients, against fiber idempotency | 1.700 (1.700 to 1.700) | missed",
		"replay | loopback, 1 client | 1.200 (1.100 to 1.200) | missed",
		"replay | one insert | 0 B | met",
		"first run | one insert, response of 200 B | 560 B | met",
		"hot key with 1,000 duplicates | one insert, 8 bystanders | 1.600 (windows: 1.400 to 1.700) | missed",
		"flat | 1,000,000 records, first run, 1 client | 1.090 (1.090 to 1.110) | met",
		"flat | 1,000,000 records, replay, 1 client | 1.120 (1.110 to 1.150) | missed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGoalsWithoutFiguresAreNotMet(t *testing.T) {
	t.Parallel()
	for _, j := range judge(&result.Results{}) {
		if j.Verdict != absent || j.Measured != "-" {
			t.Errorf("%+v", j)
		}
	}
	r := fixture()
	r.Cell("first/insert/rtt/1").Entries[1].Unverified = "nothing was executed"
	if j := judge(r)[0]; j.Verdict != absent {
		t.Errorf("a contestant that did not do its work: %+v", j)
	}
}

func TestReportShowsMissesAndNotes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := Write(path, fixture()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**missed**", "- pg18 was left out: none", "2 January 2030", `"SELECT, then INSERT" executed 10 requests, each sent by 32 callers at once, 99 times.`,
		"![The p99 of bystanders", "(benchmarks/hot-key.svg)", "| idem.Do | 1.60 (1.50 to 1.70) | 1.04 (1.03 to 1.05) | 1.06 (1.00 to 1.06) |", "1,234",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	for _, unwanted := range []string{"NaN", "Inf", "<no value>", "%!"} {
		if strings.Contains(string(text), unwanted) {
			t.Errorf("%q is in the report", unwanted)
		}
	}
}

func TestPlotsAreWellFormedAndLinked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := Write(path, fixture()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plots, err := filepath.Glob(filepath.Join(filepath.Dir(path), "benchmarks", "*.svg"))
	if err != nil || len(plots) != 6 {
		t.Fatal(plots, err)
	}
	for _, plot := range plots {
		if !strings.Contains(string(text), "(benchmarks/"+filepath.Base(plot)+")") {
			t.Errorf("%s is not linked to", plot)
		}
		letters := lettersOf(t, plot)
		if !slices.ContainsFunc(letters, func(s string) bool { return strings.Contains(s, "better") || strings.Contains(s, "records") }) {
			t.Errorf("%s: an axis says nothing: %q", plot, letters)
		}
	}
}

// lettersOf returns the texts of an SVG, each of which must have a width of its own.
func lettersOf(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var letters []string
	for decoder := xml.NewDecoder(file); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return letters
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		if !slices.ContainsFunc(start.Attr, func(a xml.Attr) bool { return a.Name.Local == "textLength" }) {
			t.Errorf("%s: a text of any width: %v", path, start.Attr)
		}
		var text string
		if err := decoder.DecodeElement(&text, &start); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, text)
	}
}

func TestReportOfAnEmptyRunIsPossible(t *testing.T) {
	t.Parallel()
	if err := Write(filepath.Join(t.TempDir(), "benchmarks.md"), &result.Results{}); err != nil {
		t.Error(err)
	}
}

// Results that are written and read give the same report.
func TestReportIsThatOfTheResults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := fixture()
	if err := before.Write(filepath.Join(dir, "results.json")); err != nil {
		t.Fatal(err)
	}
	after, err := result.Read(filepath.Join(dir, "results.json"))
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("%v (-written +read):\n%s", err, diff)
	}
}

// What is in docs/ was made of the results that lie here, by this code.
func TestReportInTheDocsIsFresh(t *testing.T) {
	t.Parallel()
	results, err := result.Read("../results.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := Write(path, results); err != nil {
		t.Fatal(err)
	}
	for _, made := range append(glob(t, filepath.Join(filepath.Dir(path), "benchmarks", "*.svg")), path) {
		name, err := filepath.Rel(filepath.Dir(path), made)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(made)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not that of the results (%v): go run . -render -report ../docs/benchmarks.md", name, err)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNumbersAreGrouped(t *testing.T) {
	t.Parallel()
	for figure, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -5000: "-5,000", 999.6: "1,000"} {
		if got := grouped(figure); got != want {
			t.Errorf("%v: got %s, want %s", figure, got, want)
		}
	}
}
