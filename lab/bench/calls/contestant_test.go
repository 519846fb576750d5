package calls

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/runner/runnertest"
	"github.com/idem-go/idem/lab/optional"
)

func TestMain(m *testing.M) { runnertest.Main(m) }

// boothOf opens a booth. It skips a test on a machine without a program of the contestant.
func boothOf(t *testing.T, c contestant.Contestant, w way) *booth {
	t.Helper()
	b, err := open(t.Context(), runnertest.Server(t), c, w)
	optional.Require(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newCall returns a call with a key of its own: all tests share the Redis servers.
func newCall() contestant.Call {
	s := newSource(rand.Uint64(), contestant.Realistic, 300)
	return s.call(s.take(1)[0])
}

func effectsOf(t *testing.T, b *booth) effects {
	t.Helper()
	found, err := count(t.Context(), b.pool)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestContestants_ExecuteOnceAndThenReplay(t *testing.T) {
	t.Parallel()
	once := effects{Orders: 1, Distinct: 1, Lines: 2, Ledger: 1, Sold: 1}
	for _, c := range append(slices.Clone(contestant.All), contestant.IdemHinted) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			b, call := boothOf(t, c, way{conns: 20}), newCall()
			again := contestant.Answer{Body: call.Body, Replayed: true}
			want := []contestant.Answer{{Body: call.Body}, again, again}
			if b.Recordless {
				want = want[:1]
			}
			for _, want := range want {
				answer, err := b.do(t.Context(), call)
				if diff := cmp.Diff(want, answer); err != nil || diff != "" {
					t.Errorf("%v, (-want +got):\n%s", err, diff)
				}
			}
			if diff := cmp.Diff(once, effectsOf(t, b)); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
}

// Both calls have looked before either has inserted: each waits, in its transaction, until the
// other is there as well.
func TestCheck_FindsSelectThenInsertExecutingTwice(t *testing.T) {
	t.Parallel()
	b := boothOf(t, contestant.SelectInsert, way{conns: 4})
	call := newCall()
	call.Business = contestant.OneInsert // the stock would make the second wait for the first
	var both, group sync.WaitGroup
	both.Add(2)
	call.Hold = func() {
		both.Done()
		both.Wait()
	}
	for range 2 {
		group.Go(func() {
			if answer, err := b.do(t.Context(), call); err != nil || answer.Replayed {
				t.Errorf("%+v, %v", answer, err)
			}
		})
	}
	group.Wait()
	found := effectsOf(t, b)
	if found.Orders != 2 || found.Distinct != 1 || found.check(1, false, false) == nil {
		t.Errorf("%+v", found)
	}
}
