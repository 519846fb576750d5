package flight

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type (
	group  = Group[string, int]
	flight = Flight[string, int]
)

// ended counts the followers by the ending of their waits.
type ended struct{ answered, leading, busy, left atomic.Int64 }

func (e *ended) add(ending Ending) {
	[]*atomic.Int64{Answered: &e.answered, Leading: &e.leading, Busy: &e.busy, Left: &e.left}[ending].Add(1)
}

func (e *ended) want(t *testing.T, answered, leading, busy, left int64) {
	t.Helper()
	got := [4]int64{e.answered.Load(), e.leading.Load(), e.busy.Load(), e.left.Load()}
	if want := [4]int64{answered, leading, busy, left}; got != want {
		t.Errorf("answered, leading, busy, left = %v, want %v", got, want)
	}
}

// lead joins a flight and fails the test unless it leads.
func lead(t *testing.T, g *group) *flight {
	t.Helper()
	f, leads := g.Join("k", new(flight))
	if !leads {
		t.Fatal("a flight without callers has a leader")
	}
	return f
}

// follow joins n followers, which wait in the background.
func follow(t *testing.T, ctx context.Context, g *group, n int, wait time.Duration) *ended {
	t.Helper()
	e := &ended{}
	for range n {
		f, leads := g.Join("k", new(flight))
		if leads {
			t.Fatal("two lead")
		}
		go func() {
			value, ending := f.Wait(ctx, wait)
			if want := map[bool]int{true: 7}[ending == Answered]; value != want {
				t.Errorf("%v with the value %d", ending, value)
			}
			e.add(ending)
		}()
	}
	synctest.Wait()
	return e
}

func wantNoFlights(t *testing.T, g *group) {
	t.Helper()
	if len(g.flights) != 0 {
		t.Errorf("%d flights are left", len(g.flights))
	}
}

func same(value int) int { return value }

func TestFlight_FollowersGetTheValueOfTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		followers := follow(t, t.Context(), g, 100, time.Hour)
		followers.want(t, 0, 0, 0, 0)
		leader.Finish(7, same)
		synctest.Wait()
		followers.want(t, 100, 0, 0, 0)
		wantNoFlights(t, g)
	})
}

func TestGroup_KeysAndLaterCallsAreIndependent(t *testing.T) {
	t.Parallel()
	g := &group{}
	leader := lead(t, g)
	other, leads := g.Join("another", new(flight))
	if !leads {
		t.Error("another key waits for this one")
	}
	other.Finish(7, same)
	leader.Finish(7, same)
	lead(t, g).Abandon()
	wantNoFlights(t, g)
}

func TestFlight_FinishCopiesNothingWithoutFollowers(t *testing.T) {
	t.Parallel()
	g := &group{}
	lead(t, g).Finish(7, func(int) int { t.Error("it was copied"); return 0 })
}

// Waking all followers would cost work for each of them, in each run of a function that keeps
// failing.
func TestFlight_AbandonWakesOneFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		g := &group{}
		leader := lead(t, g)
		followers := follow(t, t.Context(), g, n, time.Hour)
		for i := range int64(n) {
			leader.Abandon() // as the leader of this round
			synctest.Wait()
			followers.want(t, 0, i+1, 0, 0)
		}
		leader.Abandon()
		wantNoFlights(t, g)
	})
}

func TestFlight_NextLeaderAnswersTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		followers := follow(t, t.Context(), g, 10, time.Hour)
		leader.Abandon()
		synctest.Wait()
		leader.Finish(7, same)
		synctest.Wait()
		followers.want(t, 9, 1, 0, 0)
		wantNoFlights(t, g)
	})
}

func TestFlight_WaitEndsWithTimeOrContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		impatient := follow(t, t.Context(), g, 10, time.Minute)
		canceled := follow(t, ctx, g, 10, time.Hour)
		cancel()
		synctest.Wait()
		canceled.want(t, 0, 0, 0, 10)
		impatient.want(t, 0, 0, 0, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		impatient.want(t, 0, 0, 10, 0)
		leader.Abandon()
		wantNoFlights(t, g)
	})
}

// A follower may see the end of its context or the free lead first. Either a follower leads, or the
// flight ends.
func TestFlight_CanceledFollowersDoNotLoseTheLead(t *testing.T) {
	t.Parallel()
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			g := &group{}
			leader := lead(t, g)
			ctx, cancel := context.WithCancel(t.Context())
			leaving := follow(t, ctx, g, 3, time.Hour)
			go cancel()
			go leader.Abandon()
			synctest.Wait()
			if leading := leaving.leading.Load(); leading == 1 {
				leader.Abandon()
			} else if leading != 0 {
				t.Errorf("%d lead", leading)
			}
			wantNoFlights(t, g)
		})
	}
}

func TestFlight_ZeroWaitEndsWhenKeyIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		leader.MarkAsked()
		before := follow(t, t.Context(), g, 5, 0)
		patient := follow(t, t.Context(), g, 5, time.Hour)
		time.Sleep((maxLooks - 1) * lookPause) // the database is slow
		synctest.Wait()
		before.want(t, 0, 0, 0, 0)
		leader.MarkBusy()
		leader.MarkBusy()
		synctest.Wait()
		before.want(t, 0, 0, 5, 0)
		follow(t, t.Context(), g, 5, 0).want(t, 0, 0, 5, 0)
		patient.want(t, 0, 0, 0, 0)
		leader.Finish(7, same)
		synctest.Wait()
		patient.want(t, 5, 0, 0, 0)
	})
}

func TestFlight_ZeroWaitEndsAtOnceIfKeyIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		leader.MarkAsked()
		leader.MarkBusy()
		follow(t, t.Context(), g, 5, 0).want(t, 0, 0, 5, 0)
		leader.Finish(7, same)
	})
}

func TestFlight_ZeroWaitGetsTheValueOfTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		followers := follow(t, t.Context(), g, 5, 0)
		leader.MarkAsked()
		time.Sleep(2 * lookPause)
		leader.Finish(7, same)
		synctest.Wait()
		followers.want(t, 5, 0, 0, 0)
	})
}

func TestFlight_ZeroWaitEndsIfLeaderHasNoConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		begun := time.Now()
		followers := follow(t, t.Context(), g, 5, 0)
		time.Sleep(lookPause)
		synctest.Wait()
		followers.want(t, 0, 0, 5, 0)
		if took := time.Since(begun); took != lookPause {
			t.Errorf("they waited %v", took)
		}
		leader.Finish(7, same)
	})
}

// The first leader had a connection and failed; the second one waits for one.
func TestFlight_ZeroWaitEndsIfNextLeaderHasNoConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		leader := lead(t, g)
		leader.MarkAsked()
		next := follow(t, t.Context(), g, 1, time.Hour)
		early := follow(t, t.Context(), g, 5, 0)
		time.Sleep(2 * lookPause)
		synctest.Wait()
		leader.Abandon()
		synctest.Wait()
		for next.leading.Load() == 0 && early.leading.Load() < 5 { // until the follower with a wait leads
			leader.Abandon()
			synctest.Wait()
		}
		late := follow(t, t.Context(), g, 5, 0)
		time.Sleep(3 * lookPause)
		synctest.Wait()
		late.want(t, 0, 0, 5, 0)
		if waiting := 5 - early.leading.Load() - early.busy.Load(); waiting != 0 {
			t.Errorf("%d wait for a leader that has no connection", waiting)
		}
		leader.Abandon()
		wantNoFlights(t, g)
	})
}

// Many callers join, lead, wait and leave at once. There is never more than one leader of a key,
// every call ends, and no flight is left.
func TestGroup_FlightsOfManyCallersEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &group{}
		var leaders [3]atomic.Int64
		var answered, led atomic.Int64
		var callers sync.WaitGroup
		for n := range 200 {
			callers.Go(func() {
				for round := range 50 {
					key := (n + round) % len(leaders)
					switch call(t, g, key, n, round, &leaders[key]) {
					case Answered:
						answered.Add(1)
					case Leading:
						led.Add(1)
					}
				}
			})
		}
		callers.Wait()
		wantNoFlights(t, g)
		if answered.Load() == 0 || led.Load() == 0 {
			t.Errorf("%d were answered, %d led", answered.Load(), led.Load())
		}
	})
}

// call is one caller. Its choices depend on n and round only.
func call(t *testing.T, g *group, key, n, round int, leaders *atomic.Int64) Ending {
	choice := n*7919 + round*104729
	pause := time.Duration(choice%5) * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+choice%11)*time.Millisecond)
	defer cancel()
	f, leads := g.Join(string(rune('a'+key)), new(flight))
	if !leads {
		if _, ending := f.Wait(ctx, time.Duration(choice%3)*2*time.Millisecond); ending != Leading {
			return ending
		}
	}
	if leaders.Add(1) != 1 {
		t.Error("two lead at the same time")
	}
	f.MarkAsked()
	time.Sleep(pause)
	if choice%2 == 0 {
		f.MarkBusy()
	}
	leaders.Add(-1)
	if choice%3 == 0 {
		f.Finish(7, same)
	} else {
		f.Abandon()
	}
	return Leading
}

// Followers wait for a leader that is only slow to get its connection.
func TestFlight_ZeroWaitStaysWithALeaderThatIsNotStuck(t *testing.T) {
	looks := make(chan struct{}, 1)
	g := &group{Stuck: func(string) bool {
		select {
		case looks <- struct{}{}:
		default:
		}
		return false
	}}
	var own, other flight
	leader, _ := g.Join("k", &own)
	f, _ := g.Join("k", &other)
	endings := make(chan Ending, 1)
	go func() {
		_, ending := f.Wait(context.Background(), 0)
		endings <- ending
	}()
	for range 2 { // the follower looks more than once
		<-looks
	}
	leader.Finish(7, func(value int) int { return value })
	if ending := <-endings; ending != Answered {
		t.Errorf("ending %v", ending)
	}
}
