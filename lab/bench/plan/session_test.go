package plan

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/result"
)

// chosen are the steps that a selection leaves.
func chosen(t *testing.T, only string) []string {
	t.Helper()
	s := session(t)
	s.Only = regexp.MustCompile(only)
	s.Also = goal.Needing(s.Only)
	var names []string
	for _, l := range star(false, 16) {
		for _, each := range s.steps(l) {
			names = append(names, each.name)
		}
	}
	return names
}

func TestSelectionTakesStepsByNameAndWhatGoalsNeed(t *testing.T) {
	t.Parallel()
	loopback := result.Point{Work: result.Replay, Business: result.Insert, Leg: result.Loopback, Clients: 1}.Name()
	profiles := []string{result.ProfileOf(contestant.NamePlain), result.ProfileOf(contestant.NameIdem)}
	for only, want := range map[string][]string{
		"goal/replay":           {loopback},
		"goal/wal":              profiles,
		"goal/growth":           {result.Growth},
		"goal/storm":            {result.StormOf(contestant.NameIdem)},
		"^" + loopback + "$":    {loopback},
		"nothing has this name": nil,
	} {
		if diff := cmp.Diff(want, chosen(t, only)); diff != "" {
			t.Errorf("-only %s (-want +got):\n%s", only, diff)
		}
	}
}

func TestEveryGoalCanBeMeasuredAlone(t *testing.T) {
	t.Parallel()
	for _, g := range goal.All() {
		if g.Name == "goal/hinted" && len(contestant.Hinted()) == 0 {
			continue
		}
		if len(chosen(t, "^"+regexp.QuoteMeta(g.Name)+"$")) == 0 {
			t.Errorf("%s: the plan has no step for it", g.Name)
		}
	}
}

func TestThoseWhoAreComparedAreMeasuredBesideTheUnit(t *testing.T) {
	t.Parallel()
	s := session(t)
	s.Only = regexp.MustCompile("goal/duplicates")
	s.Also = goal.Needing(s.Only)
	for _, l := range star(false, 16) {
		for i, c := range l.cells {
			c = c.at(l.name)
			who := s.takers(c.Name(), c.who)
			if len(who) == 0 {
				continue
			}
			var names []string
			for _, each := range who {
				names = append(names, each.Name)
			}
			if want := []string{contestant.NamePlain, contestant.NameIdem, contestant.NameTextbook}; !slices.Equal(names, want) {
				t.Errorf("cell %d: %q, want %q", i, names, want)
			}
		}
	}
}

func TestContestantsOfACellGetTheSameKeysWhateverElseIsMeasured(t *testing.T) {
	t.Parallel()
	c := cell{result.Point{Work: result.First, Business: result.Insert, Clients: 1}, []contestant.Contestant{contestant.Plain(), contestant.Idem()}}
	keys := func(s *Session, who contestant.Contestant) []string {
		booth, err := lane(t).Booth(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		each := &seat{booth: booth}
		if err := s.prepare(t.Context(), each, c); err != nil {
			t.Fatal(err)
		}
		return each.source.Take(3)
	}
	want := keys(session(t), c.who[0])
	if diff := cmp.Diff(want, keys(session(t), c.who[1])); diff != "" {
		t.Errorf("another contestant gets others:\n%s", diff)
	}
	busy := session(t)
	keys(busy, c.who[0])
	if diff := cmp.Diff(want, keys(busy, c.who[0])); diff != "" {
		t.Errorf("later in a session it gets others:\n%s", diff)
	}
	other := session(t)
	other.Seed = 2
	if cmp.Equal(want, keys(other, c.who[0])) {
		t.Error("another seed gives the same keys")
	}
}
