package calls

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/bench/runner/runnertest"
)

// scenarioOf returns a scenario of a cell, with short turns.
func scenarioOf(c cell, who ...contestant.Contestant) runner.Scenario {
	c.limit, c.way.conns = runner.Limit{Time: 50 * time.Millisecond}, 10
	sc := runner.Scenario{Name: c.name(place{name: "test"}), Rounds: 3}
	for _, one := range who {
		sc.Contestants = append(sc.Contestants, c.contestant(one, 1))
	}
	return sc
}

func TestCell_FindsAPretender(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cell cell
		open func(context.Context, contestant.Place) (contestant.Do, error)
		want string // part of the error
	}{
		{"does nothing", cell{work: first}, func(context.Context, contestant.Place) (contestant.Do, error) {
			return func(context.Context, contestant.Call) (contestant.Answer, error) { return contestant.Answer{}, nil }, nil
		}, "0 of "},
		{"does half of it", cell{work: first, realistic: true}, func(ctx context.Context, place contestant.Place) (contestant.Do, error) {
			plain, err := contestant.Plain.Open(ctx, place)
			return func(ctx context.Context, call contestant.Call) (contestant.Answer, error) {
				call.Business = contestant.OneInsert
				return plain(ctx, call)
			}, err
		}, "0 lines"},
		{"executes in place of replaying", cell{work: replay}, contestant.Plain.Open, "were replays"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.cell.clients = 2
			pretender := contestant.Contestant{Name: "pretender", Tables: []string{"idem.records"}, Open: test.open}
			r := runner.Runner{Say: t.Logf}
			done, err := r.Measure(t.Context(), runnertest.Server(t), scenarioOf(test.cell, pretender))
			if err == nil || !strings.Contains(err.Error(), test.want) || done.Figure("pretender", "p50_us") != nil {
				t.Errorf("it passed as %+v, %v", done, err)
			}
		})
	}
}

// Not in parallel: it counts what the server logs.
func TestCosts_OfIdemMatchTheDocs(t *testing.T) {
	got := runnertest.Measure(t, runner.Scenario{Name: "costs", Contestants: []runner.Contestant{
		costs(contestant.Idem, 1), costs(contestant.Textbook, 1), costs(contestant.Plain, 1),
	}})
	want := map[string]float64{"trips_first": 3, "trips_replay": 2, "executed": 10, "refused": 0}
	// A single call may have made one more round trip, which adds a fraction to the average.
	for name, value := range want {
		if spread := got.Figure(contestant.Idem.Name, name); spread == nil || math.Floor(spread[0]) != value {
			t.Errorf("%s: %v, want %v", name, spread, value)
		}
	}
	if executed := got.Figure(contestant.Plain.Name, "executed")[0]; executed != 320 {
		t.Errorf("the plain transaction executed ten requests %v times, want 320", executed)
	}
	if got.Figure(contestant.Idem.Name, "stored")[0] < 200 || got.Figure(contestant.Idem.Name, "wal_first")[0] <= 0 {
		t.Errorf("%+v", got)
	}
}

func TestGrowth_ReplaysRecordsOfTheTable(t *testing.T) {
	t.Parallel()
	sc := runner.Scenario{Name: "growth", Rounds: 2}
	for _, records := range []int{100, 2000} {
		sc.Contestants = append(sc.Contestants, grown(records, []int{1, 2}, 30*time.Millisecond, 1))
	}
	got := runnertest.Measure(t, sc)
	for _, figure := range []string{"first1_us/base", "first2_us/base", "replay1_us/base", "replay2_us/base"} {
		if spread := got.Figure("2,000 records", figure); len(spread) != 3 {
			t.Errorf("%s: %v", figure, spread)
		}
	}
}
