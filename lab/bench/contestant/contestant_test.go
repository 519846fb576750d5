package contestant_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/arena/arenatest"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
)

var server *arena.Server

func TestMain(m *testing.M) { os.Exit(arenatest.Run(m, &server)) }

// each runs a test for every contestant that is chosen, at a booth of its own.
func each(t *testing.T, chosen func(contestant.Contestant) bool, test func(*testing.T, *arena.Booth)) {
	t.Helper()
	for _, c := range slices.Concat(contestant.All(), contestant.Hinted(), contestant.DatabaseSQL()) {
		if !chosen(c) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, arenatest.Booth(t, arenatest.Lane(t, server, 0, false), c))
		})
	}
}

// call makes a call with a key of its own: all tests share the Redis servers.
func call() contestant.Call {
	source := measure.NewSource(rand.Uint64(), contestant.Realistic, 300)
	made := source.Template
	made.Key = source.Take(1)[0]
	return made
}

func effects(t *testing.T, b *arena.Booth) arena.Effects {
	t.Helper()
	found, err := arena.Count(t.Context(), b.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func everybody(contestant.Contestant) bool { return true }

func executesOnce(c contestant.Contestant) bool { return !c.Repeats }

var once = arena.Effects{Orders: 1, Distinct: 1, Lines: 2, Ledger: 1, Sold: 1}

func TestRequestIsExecutedOnceAndThenReplayed(t *testing.T) {
	t.Parallel()
	each(t, everybody, func(t *testing.T, b *arena.Booth) {
		call := call()
		first := contestant.Answer{Body: call.Body}
		again := contestant.Answer{Body: call.Body, Replayed: true}
		want := []contestant.Answer{first, again, again}
		switch {
		case b.Contestant.Forgets:
			want[1].Body, want[2].Body = nil, nil
		case b.Contestant.Recordless:
			want = want[:1]
		}
		for _, want := range want {
			answer, err := b.Runner.Do(t.Context(), call)
			if diff := cmp.Diff(want, answer); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		}
		if diff := cmp.Diff(once, effects(t, b)); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}

func TestRequestsAtOnceAreExecutedOnceByThoseWhoPromiseIt(t *testing.T) {
	t.Parallel()
	each(t, executesOnce, func(t *testing.T, b *arena.Booth) {
		call := call()
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				answer, err := b.Runner.Do(t.Context(), call)
				silent := answer.Refused || answer.Replayed && b.Contestant.Forgets
				if err != nil || !silent && !bytes.Equal(answer.Body, call.Body) {
					t.Errorf("%+v, %v", answer, err)
				}
			})
		}
		group.Wait()
		if diff := cmp.Diff(once, effects(t, b)); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}

// Both have looked before either has inserted: each waits, in its transaction, until the other is there as well.
func TestSelectThenInsertIsCaughtExecutingTwice(t *testing.T) {
	t.Parallel()
	b := arenatest.Booth(t, arenatest.Lane(t, server, 0, false), contestant.SelectInsert())
	call := call()
	call.Business = contestant.OneInsert // the stock would make the second wait for the first
	var both, group sync.WaitGroup
	both.Add(2)
	call.Hold = func() {
		both.Done()
		both.Wait()
	}
	for range 2 {
		group.Go(func() {
			if answer, err := b.Runner.Do(t.Context(), call); err != nil || answer.Replayed {
				t.Errorf("%+v, %v", answer, err)
			}
		})
	}
	group.Wait()
	found := effects(t, b)
	if found.Orders != 2 || found.Distinct != 1 {
		t.Errorf("%+v", found)
	}
	if err := found.Check(1, false, false); err == nil {
		t.Error("the benchmark would not notice")
	}
}

func TestHoldIsInsideTheTransaction(t *testing.T) {
	t.Parallel()
	inside := func(c contestant.Contestant) bool { return c.Name != contestant.NamePipelined }
	each(t, inside, func(t *testing.T, b *arena.Booth) {
		call := call()
		call.Hold = func() {
			if found := effects(t, b); found.Orders != 0 {
				t.Errorf("visible to others: %+v", found)
			}
			if b.Pool.Stat().AcquiredConns() == 0 {
				t.Error("no connection is held")
			}
		}
		if _, err := b.Runner.Do(t.Context(), call); err != nil {
			t.Error(err)
		}
	})
}

// A contestant must not swallow what goes wrong, or the benchmark would count it as work done.
func TestFailureOfTheBusinessIsReported(t *testing.T) {
	t.Parallel()
	each(t, everybody, func(t *testing.T, b *arena.Booth) {
		call := call()
		call.Business = func(string) []contestant.Statement {
			return []contestant.Statement{{SQL: "select 1 / $1::int", Args: []any{0}}}
		}
		if answer, err := b.Runner.Do(t.Context(), call); err == nil {
			t.Errorf("%+v and no error", answer)
		}
		if diff := cmp.Diff(arena.Effects{}, effects(t, b)); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}
