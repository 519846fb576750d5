package goal

import (
	"fmt"
	"testing"
)

func TestGoalIsUndecidedWhileItsRoundsLieOnBothSidesByChance(t *testing.T) {
	t.Parallel()
	rounds := func(below, above int) (ratios []float64) {
		for range below {
			ratios = append(ratios, 1.04)
		}
		for range above {
			ratios = append(ratios, 1.06)
		}
		return ratios
	}
	for _, test := range []struct {
		below, above int
		want         Verdict
		says         string
	}{
		{1, 0, Met, "1.040 (1.040 to 1.040)"},
		{0, 3, Missed, "1.060 (1.060 to 1.060)"},
		{2, 1, Undecided, "1.040 (1.040 to 1.060), about 28 rounds would decide"},
		{1, 2, Undecided, "1.060 (1.040 to 1.060), about 28 rounds would decide"},
		{5, 5, Undecided, "1.050 (1.040 to 1.060), not even 999 rounds would decide"},
		{7, 2, Undecided, "1.040 (1.040 to 1.060), about 11 rounds would decide"},
		{8, 1, Met, "1.040 (1.040 to 1.060)"},
		{1, 8, Missed, "1.060 (1.040 to 1.060)"},
		{300, 200, Met, "1.040 (1.040 to 1.060)"},
	} {
		got := bound{limit: 1.05}.judge(rounds(test.below, test.above))
		if got.verdict != test.want || got.measured != test.says {
			t.Errorf("%d below, %d above: %s, %s", test.below, test.above, got.verdict, got.measured)
		}
	}
}

// What is said to decide does, and one round less does not.
func TestSoManyRoundsWouldDecide(t *testing.T) {
	t.Parallel()
	for _, fall := range [][2]int{{2, 3}, {3, 5}, {7, 9}, {11, 15}} {
		n := roundsToDecide(fall[0], fall[1])
		if n <= fall[1] {
			t.Errorf("%v: %d rounds", fall, n)
			continue
		}
		for rounds, want := range map[int]bool{n: true, n - 1: false} {
			more := (2*fall[0]*rounds + fall[1]) / (2 * fall[1]) // rounded
			if isDecided(more, rounds) != want {
				t.Errorf("%s: %d rounds: %t", fmt.Sprint(fall), rounds, !want)
			}
		}
	}
}
