package runner_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/optional"
)

// fake is a seat whose turns return values in order, or fail.
type fake struct {
	values []float64
	turns  int
	err    error
	wrong  error // the error of Finish
}

func (f *fake) Take(context.Context) (result.Values, error) {
	f.turns++
	return result.Values{"us": f.values[f.turns-1]}, f.err
}

func (f *fake) Finish(context.Context) (result.Values, error) {
	return result.Values{"sum": float64(f.turns)}, f.wrong
}

func contestant(name string, f *fake) runner.Contestant {
	return runner.Contestant{Name: name, Open: func(context.Context, *runner.Server) (runner.Seat, error) {
		return runner.Seat{Take: f.Take, Finish: f.Finish}, nil
	}}
}

// refusing returns a contestant that cannot be opened.
func refusing(name string, err error) runner.Contestant {
	return runner.Contestant{Name: name, Open: func(context.Context, *runner.Server) (runner.Seat, error) { return runner.Seat{}, err }}
}

func TestMeasure_ComparesRoundByRound(t *testing.T) {
	t.Parallel()
	sc := runner.Scenario{Name: "s", Rounds: 3, Contestants: []runner.Contestant{
		contestant("base", &fake{values: []float64{1, 10, 2}}), contestant("other", &fake{values: []float64{4, 40, 1}}),
	}}
	got, err := (&runner.Runner{Say: t.Logf}).Measure(t.Context(), nil, sc)
	if err != nil {
		t.Fatal(err)
	}
	want := result.Figures{
		"us": {4, 1, 40}, "us/base": {4, 0.5, 4}, "sum": {3},
	}
	if diff := cmp.Diff(want, got.Entries[1].Figures); diff != "" {
		t.Error(diff)
	}
}

func TestMeasure_ReportsFailuresAndContinues(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	never, missing := refusing("never opens", broken), refusing("missing", optional.Needs("redis-server"))
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
