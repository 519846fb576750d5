package runner_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/bench/runner/runnertest"
	"github.com/idem-go/idem/lab/optional"
)

func TestMain(m *testing.M) { runnertest.Main(m) }

// fake is a seat whose turns return values in order, or fail.
type fake struct {
	values []float64
	turns  int
	err    error
	wrong  error // what Finish finds
}

func (f *fake) Take(context.Context) (result.Values, error) {
	f.turns++
	return result.Values{"us": f.values[f.turns-1]}, f.err
}

func (f *fake) Finish(context.Context) (result.Values, error) {
	return result.Values{"sum": float64(f.turns)}, f.wrong
}

func (f *fake) Close() error { return nil }

func contestant(name string, f *fake) runner.Contestant {
	return runner.Contestant{Name: name, Open: func(context.Context, *runner.Server) (runner.Seat, error) { return f, nil }}
}

func TestMeasure_ComparesRoundByRound(t *testing.T) {
	t.Parallel()
	sc := runner.Scenario{Name: "s", Rounds: 3, Contestants: []runner.Contestant{
		contestant("base", &fake{values: []float64{1, 10, 2}}), contestant("own", &fake{values: []float64{2, 20, 3}}), contestant("other", &fake{values: []float64{4, 40, 1}}),
	}}
	got, err := (&runner.Runner{Say: t.Logf}).Measure(t.Context(), nil, sc)
	if err != nil {
		t.Fatal(err)
	}
	want := result.Figures{
		"us": {4, 1, 40}, "us/base": {4, 0.5, 4}, "sum": {3},
	}
	if diff := cmp.Diff(want, got.Entries[2].Figures); diff != "" {
		t.Error(diff)
	}
}

func TestMeasure_ReportsFailuresAndGoesOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	never := runner.Contestant{Name: "never opens", Open: func(context.Context, *runner.Server) (runner.Seat, error) { return nil, broken }}
	missing := runner.Contestant{Name: "missing", Open: func(context.Context, *runner.Server) (runner.Seat, error) { return nil, optional.Needs("redis-server") }}
	fails, wrong, fine := &fake{values: []float64{1, 1}, err: broken}, &fake{values: []float64{1, 1}, wrong: broken}, &fake{values: []float64{1, 1}}
	sc := runner.Scenario{Name: "s", Rounds: 2, Contestants: []runner.Contestant{contestant("fine", fine), contestant("fails", fails), contestant("wrong", wrong), never, missing}}
	got, err := (&runner.Runner{Say: t.Logf}).Measure(t.Context(), nil, sc)
	for _, name := range []string{"fails", "wrong", "never opens"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in the error: %v", name, err)
		}
		if figure := got.Figure(name, "us"); figure != nil {
			t.Errorf("%s has figures: %v", name, figure)
		}
	}
	if strings.Contains(err.Error(), "missing") || fails.turns != 1 || fine.turns != 2 || got.Figure("fine", "us") == nil {
		t.Errorf("%v; %d and %d turns, %+v", err, fails.turns, fine.turns, got)
	}
}

func TestRun_TakesWhatIsWantedBesideTheBase(t *testing.T) {
	t.Parallel()
	runnertest.Server(t)
	var opened []string
	named := func(name string) runner.Contestant {
		return runner.Once(name, func(context.Context, *runner.Server) (result.Values, error) {
			opened = append(opened, name)
			return result.Values{"n": 1}, nil
		})
	}
	r := runner.Runner{Only: regexp.MustCompile("two"), Who: regexp.MustCompile("c"), Say: t.Logf}
	spec := runner.Spec{Volatile: true}
	var run result.Run
	err := r.Run(t.Context(), &run, []runner.Scenario{
		{Name: "one", Server: spec, Contestants: []runner.Contestant{named("a")}},
		{Name: "two", Server: spec, Contestants: []runner.Contestant{named("a"), named("b"), named("c")}},
	})
	slices.Sort(opened)
	if diff := cmp.Diff([]string{"a", "c"}, opened); err != nil || diff != "" || len(run.Servers) != 1 {
		t.Errorf("%v, %s, %v", err, diff, run.Servers)
	}
}
