package flight_test

import (
	"context"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/flight"
)

const limit = 30 * time.Second

func always() bool { return true }

// join makes a call of n that follow one flight, and returns when all do. lead is called by each that is given the lead.
func join(t *testing.T, group *flight.Group[string, int], n int, lead func(*flight.Flight[string, int])) (leader *flight.Flight[string, int], endings chan flight.Ending) {
	t.Helper()
	var own flight.Flight[string, int]
	leader, leads := group.Join("k", &own)
	if !leads {
		t.Fatal("somebody else leads")
	}
	endings = make(chan flight.Ending, n)
	var joined sync.WaitGroup
	joined.Add(n)
	for range n {
		go func() {
			var own flight.Flight[string, int]
			f, leads := group.Join("k", &own)
			joined.Done()
			if leads {
				t.Error("two lead")
				return
			}
			_, ending := f.Wait(context.Background(), limit, always)
			if ending == flight.Leading {
				lead(f)
			}
			endings <- ending
		}()
	}
	joined.Wait()
	return leader, endings
}

// wakeups returns how often goroutines of the process were scheduled. The runtime looks at one in eight.
func wakeups() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * count
	}
	return n
}

// A storm of duplicates of something that fails must not wake all who wait at each failure.
func TestFailingLeaderWakesOneFollowerPerRun(t *testing.T) {
	const followers = 3_000
	var group flight.Group[string, int]
	var leading, runs atomic.Int64
	leader, endings := join(t, &group, followers, func(f *flight.Flight[string, int]) {
		if leading.Add(1) > 1 {
			t.Error("two lead at once")
		}
		runs.Add(1)
		leading.Add(-1)
		f.Abandon()
	})
	before := wakeups()
	leader.Abandon()
	for range followers {
		if ending := <-endings; ending != flight.Leading {
			t.Errorf("ending %v", ending)
		}
	}
	if n := runs.Load(); n != followers {
		t.Errorf("%d runs", n)
	}
	if n := wakeups() - before; n > 50*followers { // if all were woken each time it would be 1,500 for each
		t.Errorf("%d wake-ups for %d runs", n, followers)
	}
	var own flight.Flight[string, int]
	if _, leads := group.Join("k", &own); !leads {
		t.Error("the flight outlives all who were on it")
	}
}

func TestValueOfTheLeaderIsGivenToEveryFollower(t *testing.T) {
	var group flight.Group[string, int]
	leader, endings := join(t, &group, 100, func(*flight.Flight[string, int]) { t.Error("somebody leads") })
	leader.Finish(func() int { return 7 })
	for range 100 {
		if ending := <-endings; ending != flight.Answered {
			t.Errorf("ending %v", ending)
		}
	}
}

// The lead is not lost with a follower that leaves just when it is given it.
func TestLeadIsNeverLostWithAFollowerThatLeaves(t *testing.T) {
	for range 300 {
		var group flight.Group[string, int]
		ctx, cancel := context.WithCancel(context.Background())
		var leads sync.WaitGroup
		var own flight.Flight[string, int]
		leader, _ := group.Join("k", &own)
		var followers sync.WaitGroup
		for i := range 4 {
			own := &flight.Flight[string, int]{}
			f, _ := group.Join("k", own)
			followers.Go(func() {
				waiting := context.Background()
				if i > 0 {
					waiting = ctx
				}
				if _, ending := f.Wait(waiting, limit, always); ending == flight.Leading {
					f.Abandon()
				}
			})
		}
		leads.Go(cancel)
		leader.Abandon()
		leads.Wait()
		followers.Wait()
		var last flight.Flight[string, int]
		if _, leads := group.Join("k", &last); !leads {
			t.Fatal("the flight outlives all who were on it")
		}
	}
}

// A follower that does not want to wait does not wait for a leader that has no connection either.
func TestImpatientFollowerLeavesALeaderThatWaitsForAConnection(t *testing.T) {
	var group flight.Group[string, int]
	var own, other flight.Flight[string, int]
	leader, _ := group.Join("k", &own)
	f, _ := group.Join("k", &other)
	if _, ending := f.Wait(context.Background(), 0, always); ending != flight.Busy {
		t.Errorf("ending %v", ending)
	}
	leader.Abandon()
}

func TestImpatientFollowerLeavesALeaderThatIsBusy(t *testing.T) {
	var group flight.Group[string, int]
	var own, other flight.Flight[string, int]
	leader, _ := group.Join("k", &own)
	leader.MarkAsked()
	f, _ := group.Join("k", &other)
	leader.MarkBusy()
	if _, ending := f.Wait(context.Background(), 0, always); ending != flight.Busy {
		t.Errorf("ending %v", ending)
	}
	leader.Finish(func() int { return 0 })
}
