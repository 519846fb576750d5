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

const limit = 2 * time.Minute

// join starts n followers of one flight and returns once all have joined. A follower that gets the
// lead calls lead.
func join(t *testing.T, group *flight.Group[string, int], n int, lead func(*flight.Flight[string, int])) (leader *flight.Flight[string, int], endings chan flight.Ending) {
	t.Helper()
	var own flight.Flight[string, int]
	leader, leads := group.Join("k", &own)
	if !leads {
		t.Fatal("another one leads")
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
			_, ending := f.Wait(context.Background(), limit)
			if ending == flight.Leading {
				lead(f)
			}
			endings <- ending
		}()
	}
	joined.Wait()
	return leader, endings
}

// wakeups estimates how often goroutines of the process were scheduled. The runtime samples one in
// eight.
func wakeups() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * count
	}
	return n
}

// A failure must not wake all followers.
func TestFlight_FailingLeaderWakesOneFollowerPerRun(t *testing.T) {
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
	if n := wakeups() - before; n > 50*followers { // waking all of them would be 1,500 for each run
		t.Errorf("%d wake-ups for %d runs", n, followers)
	}
	var own flight.Flight[string, int]
	if _, leads := group.Join("k", &own); !leads {
		t.Error("the flight outlives all who were on it")
	}
}

// Followers wait for a leader that is only slow to get its connection.
func TestFlight_ZeroWaitStaysWithALeaderThatIsNotStuck(t *testing.T) {
	looks := make(chan struct{}, 1)
	group := flight.Group[string, int]{Stuck: func(string) bool {
		select {
		case looks <- struct{}{}:
		default:
		}
		return false
	}}
	var own, other flight.Flight[string, int]
	leader, _ := group.Join("k", &own)
	f, _ := group.Join("k", &other)
	endings := make(chan flight.Ending, 1)
	go func() {
		_, ending := f.Wait(context.Background(), 0)
		endings <- ending
	}()
	for range 2 { // the follower looks more than once
		<-looks
	}
	leader.Finish(7, func(value int) int { return value })
	if ending := <-endings; ending != flight.Answered {
		t.Errorf("ending %v", ending)
	}
}
