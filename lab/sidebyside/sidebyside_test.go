package sidebyside_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/sidebyside"
)

func TestSpreadIsTheMedianBetweenTheLeastAndTheGreatest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		figures []float64
		want    sidebyside.Spread
	}{
		{nil, sidebyside.Spread{}},
		{[]float64{3}, sidebyside.Spread{Median: 3, Least: 3, Greatest: 3}},
		{[]float64{9, 1, 4}, sidebyside.Spread{Median: 4, Least: 1, Greatest: 9}},
		{[]float64{9, 1, 4, 2}, sidebyside.Spread{Median: 3, Least: 1, Greatest: 9}},
	} {
		if got := sidebyside.SpreadOf(test.figures); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.figures, got, test.want)
		}
	}
}

func TestRatiosAreThoseOfOneRound(t *testing.T) {
	t.Parallel()
	got := sidebyside.Ratios([]float64{10, 30, 5}, []float64{5, 10})
	if diff := cmp.Diff([]float64{2, 3}, got); diff != "" {
		t.Error(diff)
	}
}

func TestQuantileIsTheNearestOfTheFigures(t *testing.T) {
	t.Parallel()
	all := []time.Duration{1, 2, 3, 4, 100}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 100} {
		if got := sidebyside.Quantile(all, q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
	if got := sidebyside.Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestBarsSayWhichWereMissed(t *testing.T) {
	t.Parallel()
	got := sidebyside.BarTable([]sidebyside.Bar{{What: "fast", Got: "1 s", Met: true}, {What: "small", Got: "9 GB"}})
	want := strings.Join([]string{
		"| bar | measured | verdict |", "| --- | --- | --- |", "| fast | 1 s | met |", "| small | 9 GB | **missed** |", "",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHostIsKnown(t *testing.T) {
	t.Parallel()
	host := sidebyside.Here()
	if host.Taken.IsZero() || !strings.Contains(host.Machine, "cores of") {
		t.Errorf("%+v", host)
	}
	if v := sidebyside.Versions(); !strings.HasPrefix(v, "go 1.") {
		t.Error(v)
	}
}
