package goal_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/result/resulttest"
)

func TestGoalsAreJudgedByTheMedianOfTheRounds(t *testing.T) {
	t.Parallel()
	var got []string
	for _, j := range goal.Judge(resulttest.Run()) {
		if j.Verdict != goal.Absent {
			got = append(got, strings.Join([]string{j.Goal.Name, j.Where, j.Measured, string(j.Verdict)}, " | "))
		}
	}
	want := []string{
		"goal/latency | one insert, 1 client | 1.040 (1.030 to 1.050), about 28 rounds would decide | undecided",
		"goal/latency | realistic, 1 client | 1.060 (1.000 to 1.060), about 28 rounds would decide | undecided",
		"goal/processor | one insert, 1 client | 1.143 (1.071 to 1.214), about 28 rounds would decide | undecided",
		"goal/processor | realistic, 8 clients | 1.250 (1.250 to 1.250) | missed",
		"goal/commits | realistic, 8 clients, against fiber idempotency | 1.700 (1.700 to 1.700) | missed",
		"goal/replay | replay, 1 client | 1.600 (1.500 to 1.700), about 28 rounds would decide | undecided",
		"goal/far-replay | replay, 1 client | 1.180 (1.100 to 1.200), about 28 rounds would decide | undecided",
		"goal/hinted | replay, 1 client | 1.100 (1.100 to 1.200), about 28 rounds would decide | undecided",
		"goal/duplicates | realistic, 8 clients | 1.000 (0.900 to 1.100), about 28 rounds would decide | undecided",
		"goal/wal | one insert, first run | 650.0 | met",
		"goal/wal | one insert, replay | 0.0 | met",
		"goal/allocations | one insert, first run | 60.0 | met",
		"goal/allocations | one insert, replay | 30.0 | missed",
		"goal/storm | one insert, 8 bystanders | 1.600 (windows: 1.400 to 1.700) | missed",
		"goal/growth | 1,000,000 records, first run, 1 client | 1.090 (1.090 to 1.110), about 28 rounds would decide | undecided",
		"goal/growth | 1,000,000 records, replay, 1 client | 1.120 (1.110 to 1.150) | missed",
		"goal/textbook | time, in every cell with both | cheaper in 0 of 2 cells | met",
		"goal/textbook | round trips of a first run | 3.0 against 5.0 | met",
		"goal/textbook | round trips of a replay | 2.0 against 4.0 | met",
		"goal/textbook | write-ahead log of a replay | 0.0 against 0.0 | met",
		"goal/textbook | bytes stored | 1234.0 against 1234.0 | met",
		"goal/textbook | allocations of a first run | 60.0 against 40.0 | missed",
		"goal/textbook | allocations of a replay | 30.0 against 30.0 | met",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGoalsWithoutFiguresAreNotMet(t *testing.T) {
	t.Parallel()
	for _, j := range goal.Judge(&result.Results{}) {
		if j.Verdict != goal.Absent || j.Measured != "-" {
			t.Errorf("%+v", j)
		}
	}
	r := resulttest.Run()
	r.Cell(result.Point{Work: result.First, Business: result.Insert, Leg: result.RTT, Clients: 1}).Entries[1].Unverified = "nothing was executed"
	if j := goal.Judge(r)[0]; j.Verdict != goal.Absent {
		t.Errorf("a contestant that did not do its work: %+v", j)
	}
}

// Who is ahead in 11 of 15 rounds may be so by chance, who is in 13 is not.
func TestTextbookIsCheaperIfThatIsNoChance(t *testing.T) {
	t.Parallel()
	point := result.Point{Work: result.First, Business: result.Insert, Leg: result.Loopback, Clients: 8}
	for _, test := range []struct {
		behind int
		want   goal.Verdict
	}{{0, goal.Met}, {11, goal.Met}, {13, goal.Missed}, {15, goal.Missed}} {
		idem, textbook := result.Entry{Name: contestant.NameIdem}, result.Entry{Name: contestant.NameTextbook}
		for round := range 15 {
			figure := 101.0
			if round < test.behind {
				figure = 99
			}
			idem.Rounds = append(idem.Rounds, result.Round{PerSecond: figure, P50: 1})
			textbook.Rounds = append(textbook.Rounds, result.Round{PerSecond: 100, P50: 1})
		}
		r := &result.Results{Cells: []result.Cell{{
			Name: point.Name(), Setting: result.Setting{Clients: 8}, Entries: []result.Entry{idem, textbook},
		}}}
		for _, j := range goal.Judge(r) {
			if strings.HasPrefix(j.Where, "time") && j.Verdict != test.want {
				t.Errorf("behind in %d of 15 rounds: %s, %s, want %s", test.behind, j.Measured, j.Verdict, test.want)
			}
		}
	}
}

func TestGoalNeedsOnlyWhomItCompares(t *testing.T) {
	t.Parallel()
	needs := goal.Needing(regexp.MustCompile("goal/replay"))
	loopback := result.Point{Work: result.Replay, Business: result.Insert, Leg: result.Loopback, Clients: 1}.Name()
	for _, test := range []struct {
		step, who string
		want      bool
	}{
		{loopback, contestant.NameIdem, true},
		{loopback, contestant.NameLookup, true},
		{loopback, contestant.NameTextbook, false},
		{result.Growth, contestant.NameIdem, false},
		{result.ProfileOf(contestant.NameIdem), contestant.NameIdem, false},
	} {
		if got := needs(test.step, test.who); got != test.want {
			t.Errorf("%s, %s: %v, want %v", test.step, test.who, got, test.want)
		}
	}
}

func TestEveryGoalHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	var names []string
	for _, g := range goal.All() {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("a name is used twice: %v", names)
	}
}
