package measure_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
)

func TestSpreadIsMedianLeastAndGreatest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		figures []float64
		want    measure.Spread
	}{
		{[]float64{3, 1, 2}, measure.Spread{Median: 2, Min: 1, Max: 3}},
		{[]float64{4, 1, 2, 3}, measure.Spread{Median: 2.5, Min: 1, Max: 4}},
		{[]float64{7}, measure.Spread{Median: 7, Min: 7, Max: 7}},
		{nil, measure.Spread{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}},
	} {
		if diff := cmp.Diff(test.want, measure.Of(test.figures), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.figures, diff)
		}
	}
}

func TestQuantileLiesBetweenItsNeighbours(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 101)
	for i := range hundred {
		hundred[i] = float64(i)
	}
	for q, want := range map[float64]float64{0: 0, 0.5: 50, 0.99: 99, 0.995: 99.5, 1: 100} {
		if got := measure.Quantile(hundred, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: got %v, want %v", q, got, want)
		}
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	// In the second round the machine was ten times as slow, for both.
	got := measure.Ratios([]float64{2, 20, 3}, []float64{1, 10, 2, 4})
	if diff := cmp.Diff([]float64{2, 2, 1.5}, got); diff != "" {
		t.Error(diff)
	}
}

// fake answers as a test wants.
type fake func(contestant.Call) (contestant.Answer, error)

func (f fake) Do(_ context.Context, call contestant.Call) (contestant.Answer, error) { return f(call) }
func (fake) Close()                                                                  {}

func TestSampleCountsCallsAndAnswers(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	runner := fake(func(contestant.Call) (contestant.Answer, error) {
		at := n.Add(1)
		return contestant.Answer{Replayed: at%2 == 0, Refused: at%5 == 0}, nil
	})
	source := measure.NewSource(1, contestant.OneInsert, 100)
	sample := measure.Run(t.Context(), runner, source, 4, measure.Limit{Ops: 25})
	if sample.Err != nil || len(sample.Latencies) != 100 || sample.Replayed != 50 || sample.Refused != 20 || source.Fresh() != 100 {
		t.Errorf("%d calls, %d replayed, %d refused, %d keys, %v", len(sample.Latencies), sample.Replayed, sample.Refused, source.Fresh(), sample.Err)
	}
}

func TestSampleEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	runner := fake(func(contestant.Call) (contestant.Answer, error) {
		time.Sleep(time.Millisecond)
		return contestant.Answer{}, nil
	})
	sample := measure.Run(t.Context(), runner, measure.NewSource(1, contestant.OneInsert, 100), 2, measure.Limit{Time: 20 * time.Millisecond})
	if sample.Err != nil || sample.Elapsed < 20*time.Millisecond || time.Since(begin) > time.Minute || sample.P(0.5) < 1000 {
		t.Errorf("%v, p50 %v µs, %v", sample.Elapsed, sample.P(0.5), sample.Err)
	}
}

func TestFailedCallEndsTheSample(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	runner := fake(func(contestant.Call) (contestant.Answer, error) { return contestant.Answer{}, broken })
	if sample := measure.Run(t.Context(), runner, measure.NewSource(1, contestant.OneInsert, 100), 4, measure.Limit{}); !errors.Is(sample.Err, broken) {
		t.Errorf("got %v", sample.Err)
	}
}

func TestUntilFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	runner := fake(func(contestant.Call) (contestant.Answer, error) {
		cancel()
		return contestant.Answer{}, nil
	})
	sample := measure.Until(ctx, runner, measure.NewSource(1, contestant.OneInsert, 100), 1)
	if sample.Err != nil || len(sample.Latencies) == 0 {
		t.Errorf("%d calls, %v", len(sample.Latencies), sample.Err)
	}
}

func TestSourceRepeatsItsShare(t *testing.T) {
	t.Parallel()
	source := measure.NewSource(7, contestant.OneInsert, 100)
	source.Share = 0.5
	seen := map[string]bool{}
	const calls = 10_000
	for _, key := range source.Take(calls) {
		seen[key] = true
	}
	if len(seen) != source.Fresh() || math.Abs(float64(len(seen))/calls-0.5) > 0.03 {
		t.Errorf("%d keys in %d calls, counted as %d", len(seen), calls, source.Fresh())
	}
}

func TestSourceWithKeysCallsNoOthers(t *testing.T) {
	t.Parallel()
	source := measure.NewSource(7, contestant.OneInsert, 100)
	source.Keys = []string{"a", "b"}
	if diff := cmp.Diff([]string{"a", "b"}, source.Take(2), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" || source.Fresh() != 0 {
		t.Errorf("%d new, %s", source.Fresh(), diff)
	}
}

func TestKeysOfForksAreTheirOwn(t *testing.T) {
	t.Parallel()
	source := measure.NewSource(7, contestant.OneInsert, 100)
	seen := map[string]bool{}
	for _, s := range []*measure.Source{source, source.Fork(), source.Fork(), source} {
		for _, key := range s.Take(100) {
			if seen[key] || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(key) {
				t.Fatalf("%s is used twice, or no UUID", key)
			}
			seen[key] = true
		}
	}
}

func TestBodyIsJSONOfTheSizeAskedFor(t *testing.T) {
	t.Parallel()
	for _, size := range []int{200, 16 << 10, 1 << 20} {
		if body := measure.Body(1, size); len(body) != size || !json.Valid(body) {
			t.Errorf("%d bytes instead of %d: %.80s", len(body), size, body)
		}
	}
}
