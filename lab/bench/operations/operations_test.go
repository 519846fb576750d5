package operations

import (
	"slices"
	"testing"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/bench/runner/runnertest"
)

// The test binary is also the process that gets killed.
func TestMain(m *testing.M) {
	Work()
	runnertest.Main(m)
}

func TestContestants_ChargeAndConfirmEachOrderOnce(t *testing.T) {
	t.Parallel()
	s := runnertest.Server(t)
	for _, c := range append(slices.Clone(contestant.All), contestant.IdemOnce) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			dsn, err := s.Database(t.Context(), contestant.Schema, c.Prepare)
			if err != nil {
				t.Fatal(err)
			}
			other, err := bank.Open(0, false)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			b, err := openBooth(t.Context(), c, contestant.Place{DSN: dsn}, other.URL, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			made, err := b.load(t.Context(), 3, runner.Limit{Calls: 2})
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t.Context(), dsn, other, len(made.Latencies)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Not in parallel: it counts the commits of the server.
func TestScenarios_MeasureWhatIdemPromises(t *testing.T) {
	idem := contestant.Idem.Name
	who := func(name string) runner.Scenario {
		sc := runnertest.Find(t, Scenarios(true, 1), name)
		sc.Contestants = sc.Contestants[:min(2, len(sc.Contestants))]
		return sc
	}
	costs := runnertest.Measure(t, who("operations/costs"))
	if commits, trips := costs.Figure(idem, "commits"), costs.Figure(idem, "trips"); commits == nil || commits[0] >= 0 && int(commits[0]) != 2 || trips[0] > 12 {
		t.Errorf("%v commits, %v round trips", commits, trips)
	}
	if near := runnertest.Measure(t, who("operations/near/8")); len(near.Figure(idem, "per_s/base")) != 3 {
		t.Errorf("%+v", near)
	}
}

func TestKill_CountsResumedAndParkedOperations(t *testing.T) {
	t.Parallel()
	sc := runnertest.Find(t, Scenarios(true, 1), "operations/killed")
	sc.Contestants = []runner.Contestant{sc.Contestants[0], sc.Contestants[len(sc.Contestants)-1]}
	got := runnertest.Measure(t, sc)
	for figure, want := range map[string]float64{"orders": 9, "confirmed": 9, "victims": 3, "resumed": 3, "charged_twice": 0} {
		if spread := got.Figure(contestant.Idem.Name, figure); spread == nil || spread[0] != want {
			t.Errorf("idem: %s: %v, want %v", figure, spread, want)
		}
	}
	for figure, want := range map[string]float64{"confirmed": 6, "parked": 3, "resumed": 0, "charged_twice": 0} {
		if spread := got.Figure(contestant.IdemOnce.Name, figure); spread == nil || spread[0] != want {
			t.Errorf("idem, Once: %s: %v, want %v", figure, spread, want)
		}
	}
}
