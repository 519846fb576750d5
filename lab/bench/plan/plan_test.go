package plan

import (
	"context"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/arena/arenatest"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

var server *arena.Server

func TestMain(m *testing.M) { os.Exit(arenatest.Run(m, &server)) }

func session(t *testing.T) *Session {
	return &Session{Quick: true, Say: t.Logf, results: &result.Results{}}
}

func lane(t *testing.T) *arena.Lane { return arenatest.Lane(t, server, 0, false) }

// measured lets contestants take their turns in one cell.
func measured(t *testing.T, c cell) result.Cell {
	t.Helper()
	s := session(t)
	if err := s.cell(t.Context(), lane(t), leg{name: "loopback", server: arena.Spec{Name: "test"}}, c); err != nil {
		t.Fatal(err)
	}
	return s.results.Cells[0]
}

func TestCellComparesContestantsAndCountsWhatTheyDid(t *testing.T) {
	t.Parallel()
	for _, c := range []cell{
		{result.Point{Work: result.First, Business: result.Realistic, Clients: 2}, []contestant.Contestant{contestant.Plain(), contestant.Idem()}},
		{result.Point{Work: result.Replay, Business: result.Insert, Clients: 2}, []contestant.Contestant{contestant.Lookup(), contestant.Idem()}},
		{result.Point{Work: result.Mixed, Business: result.Realistic, Clients: 4, Share: 0.5}, []contestant.Contestant{contestant.Plain(), contestant.Idem()}},
	} {
		t.Run(c.Work, func(t *testing.T) {
			t.Parallel()
			done := measured(t, c)
			for _, name := range []string{c.who[0].Name, c.who[1].Name} {
				e := done.Entry(name)
				if e == nil || len(e.Rounds) != 3 || e.Ops == 0 || e.P50 <= 0 || e.P99 < e.P50 {
					t.Fatalf("%+v", done.Entries)
				}
			}
			plain, idem := done.Entries[0], done.Entries[1]
			switch {
			case c.Work == result.Replay && (idem.Executed != 100 || idem.Replayed != idem.Ops):
				t.Errorf("%+v", idem)
			case c.Work == result.Mixed && (idem.Executed != idem.Requests || idem.Replayed == 0 || plain.Executed <= plain.Requests):
				t.Errorf("%+v, %+v", idem, plain)
			case c.Work == result.First && (idem.Executed < idem.Ops || idem.Replayed != 0):
				t.Errorf("%+v", idem)
			}
		})
	}
}

func TestProcessorTimeOfServerAndClientIsReadOnLoopback(t *testing.T) {
	t.Parallel()
	who := []contestant.Contestant{contestant.BareWrites(), contestant.Idem()}
	for _, leg := range []string{result.Loopback, result.RTT} {
		done := measured(t, cell{result.Point{Work: result.First, Business: result.Insert, Leg: leg, Clients: 2}, who})
		for _, e := range done.Entries {
			if e.Error != "" || e.Unverified != "" || len(e.Rounds) != 3 {
				t.Fatalf("%+v", e)
			}
			for _, r := range e.Rounds {
				if (r.Processor > 0) != (leg == result.Loopback && runtime.GOOS == "linux") {
					t.Errorf("%s: %s: %+v", leg, e.Name, r)
				}
			}
		}
	}
}

// pretender is a contestant that works like others, and claims what they do not.
func pretender(open func(context.Context, contestant.Place) (contestant.Runner, error)) contestant.Contestant {
	return contestant.Contestant{Name: "pretender", Tables: []string{"idem.records"}, Open: open}
}

// half does the first half of the business.
type half struct{ contestant.Runner }

func (h half) Do(ctx context.Context, call contestant.Call) (contestant.Answer, error) {
	call.Business = contestant.OneInsert
	return h.Runner.Do(ctx, call)
}

func TestPretenderIsFoundOut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cell cell
		open func(context.Context, contestant.Place) (contestant.Runner, error)
		says string
	}{
		{"does nothing", cell{Point: result.Point{Work: result.First, Business: result.Insert}}, func(context.Context, contestant.Place) (contestant.Runner, error) {
			return nothing{}, nil
		}, "0 of "},
		{"does half of it", cell{Point: result.Point{Work: result.First, Business: result.Realistic}}, func(ctx context.Context, place contestant.Place) (contestant.Runner, error) {
			plain, err := contestant.Plain().Open(ctx, place)
			return half{plain}, err
		}, "0 lines"},
		{"executes duplicates again", cell{Point: result.Point{Work: result.Mixed, Business: result.Insert, Share: 0.5}}, contestant.Plain().Open, "times"},
		{"executes what is to be replayed", cell{Point: result.Point{Work: result.Replay, Business: result.Insert}}, contestant.Plain().Open, "were replays"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := test.cell
			c.Clients, c.who = 2, []contestant.Contestant{pretender(test.open)}
			done := measured(t, c)
			if got := done.Entries[0].Unverified; !strings.Contains(got, test.says) || done.Entry("pretender") != nil {
				t.Errorf("it passed as %+v", done.Entries[0])
			}
		})
	}
}

func TestContestantThatFailsIsReportedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	broken := contestant.Idem()
	broken.Name = "broken"
	broken.Open = func(context.Context, contestant.Place) (contestant.Runner, error) { return nil, os.ErrNotExist }
	done := measured(t, cell{result.Point{Work: result.First, Business: result.Insert, Clients: 1}, []contestant.Contestant{contestant.Plain(), broken}})
	if done.Entries[1].Error == "" || done.Entry("broken") != nil || done.Entry(contestant.Plain().Name) == nil {
		t.Errorf("%+v", done.Entries)
	}
}

// Not in parallel: what the process allocates and what the server logs is counted.
func TestProfileOfIdemIsWhatTheLibraryPromises(t *testing.T) {
	s := session(t)
	if err := s.profile(t.Context(), lane(t), contestant.Idem()); err != nil {
		t.Fatal(err)
	}
	p := s.results.Profiles[0]
	trips := p.Trips // of some calls: one of them may have made one more, of which a part is left here
	for _, n := range []*float64{&trips.Insert, &trips.Realistic, &trips.Replay} {
		*n = math.Floor(*n)
	}
	if trips != (result.Trips{Insert: 3, Realistic: 7, Replay: 2}) || p.WAL.First <= 0 || p.WAL.Replay != 0 || p.Allocs.First <= 0 || p.Storage < 200 ||
		p.Held != (result.Held{Running: 1}) || p.Duplicates != (result.Duplicates{Races: 10, Executed: 10}) {
		t.Errorf("%+v", p)
	}
}

func TestProfileTellsConnectionsOfWaitingDuplicates(t *testing.T) {
	t.Parallel()
	booth := arenatest.Booth(t, lane(t), contestant.Textbook())
	b := &bench{booth, measure.NewSource(3, contestant.OneInsert, result.Small)}
	var p result.Profile
	if err := session(t).held(t.Context(), b, &p); err != nil || p.Held != (result.Held{Running: 1, Waiting: 20}) {
		t.Errorf("%+v, %v", p.Held, err)
	}
}

func TestProfileTellsWhatWasExecutedTwice(t *testing.T) {
	t.Parallel()
	booth := arenatest.Booth(t, lane(t), contestant.Plain())
	b := &bench{booth, measure.NewSource(3, contestant.OneInsert, result.Small)}
	var p result.Profile
	if err := session(t).races(t.Context(), b, &p); err != nil || p.Duplicates != (result.Duplicates{Races: 10, Executed: 320}) {
		t.Errorf("%+v, %v", p.Duplicates, err)
	}
}

func TestStormWaitsForEveryDuplicate(t *testing.T) {
	t.Parallel()
	booth := arenatest.Booth(t, lane(t), contestant.Idem())
	b := &bench{booth, measure.NewSource(3, contestant.OneInsert, result.Small)}
	const duplicates = 50
	w, err := b.window(t.Context(), duplicates)
	if err != nil || w.answers != 1+duplicates || w.executed != 1 || w.refused != 0 || w.settled < firstRun || len(w.sample.Latencies) == 0 {
		t.Errorf("%+v, %v", w, err)
	}
	effects, err := arena.Count(t.Context(), booth.Pool)
	if err != nil || effects.Check(b.source.Fresh(), false, false) != nil {
		t.Errorf("%+v of %d, %v", effects, b.source.Fresh(), err)
	}
}

// late answers duplicates long after the first run is over.
type late struct{ hot atomic.Pointer[string] }

func (l *late) Do(_ context.Context, call contestant.Call) (contestant.Answer, error) {
	if call.Hold != nil {
		l.hot.Store(&call.Key)
		call.Hold()
	} else if hot := l.hot.Load(); hot != nil && *hot == call.Key {
		time.Sleep(2 * firstRun)
	}
	return contestant.Answer{}, nil
}

func (*late) Close() {}

func TestStormLastsUntilTheLastAnswer(t *testing.T) {
	t.Parallel()
	const duplicates = 20
	b := &bench{&arena.Booth{Runner: &late{}}, measure.NewSource(3, contestant.OneInsert, result.Small)}
	w, err := b.window(t.Context(), duplicates)
	if err != nil || w.answers != 1+duplicates || w.settled < 2*firstRun {
		t.Errorf("%d answers, the last after %v, %v", w.answers, w.settled, err)
	}
}

func TestGrowthMeasuresRecordsThatAreReplayed(t *testing.T) {
	t.Parallel()
	s := session(t)
	if err := s.growth(t.Context(), lane(t), leg{name: "grown", server: arena.Spec{Name: "test"}, growth: []int{100, 2000}}); err != nil {
		t.Fatal(err)
	}
	for _, done := range s.results.Cells {
		if done.Entry("100 records") == nil || done.Entry("2,000 records") == nil {
			t.Errorf("%+v", done)
		}
	}
}

func TestEveryPointHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	names := map[bool][]string{}
	for _, quick := range []bool{true, false} {
		for _, l := range star(quick, 16) {
			for _, each := range session(t).steps(l) {
				names[quick] = append(names[quick], each.name)
			}
		}
		slices.Sort(names[quick])
		if unique := slices.Compact(slices.Clone(names[quick])); len(unique) != len(names[quick]) {
			t.Errorf("a name is used twice: %v", names[quick])
		}
	}
	for _, name := range names[true] {
		if _, found := slices.BinarySearch(names[false], name); !found {
			t.Errorf("the quick run measures %s, the whole one does not", name)
		}
	}
}

func TestClockLearnsFromWhatWasPlanned(t *testing.T) {
	t.Parallel()
	var c clock
	c.add(10 * time.Second)
	c.add(20 * time.Second)
	c.took(10*time.Second, 20*time.Second) // twice as slow as planned
	if got := strings.TrimSpace(c.left()); got != "0:40 left" {
		t.Errorf("got %q", got)
	}
}
