package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// street is an outbox in memory, in a bubble of synctest: a call that fails takes as long as it says by the clock of the bubble, any other takes no
// time, whatever the machine does meanwhile.
type street struct {
	t      *testing.T
	config *RelayConfig
	to     *destinations
	held   heldKeys
	fail   func(ctx context.Context, bad []Message) error

	mu      sync.Mutex
	waiting []store.Queued // in order
	last    int64          // place
	down    bool           // every call fails

	gone    map[string]bool // what has left, by its ID
	doubted map[string]bool // the keys of good ones that were in a call which has failed
	failed  int             // calls
	largest int             // of these
	ended   time.Time       // when the last of these has ended
	overdue int             // good ones at the beginning of one, that had waited for a turn when the one before had ended
	latest  time.Duration   // how late a good one was

	found map[string]int // failed calls, until a bad one was found
	since map[string]int // failed calls, when it was added
	dead  int
}

// onStreet runs a test in a bubble.
func onStreet(t *testing.T, fail func(ctx context.Context, bad []Message) error, test func(s *street)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &street{t: t, config: &RelayConfig{PublishTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}, held: newHeldKeys(nil, time.Now()), fail: fail,
			gone: map[string]bool{}, doubted: map[string]bool{}, found: map[string]int{}, since: map[string]int{}, ended: time.Now()}
		if err := s.config.set(); err != nil {
			t.Fatal(err)
		}
		seen := &ownership{}
		seen.seen.Store(time.Now().Add(24 * time.Hour).UnixNano())
		publisher := PublisherFunc(s.publish)
		s.to = newDestinations(publisher, &memory{most: 1 << 20}, func(string) *destination {
			c := caller{publisher: publisher, config: s.config, ownership: seen, abort: t.Context(), sole: true, size: s.config.BatchSize}
			return &destination{caller: c, pauses: pausesOf(s.config)}
		})
		test(s)
	})
}

func (s *street) publish(ctx context.Context, messages []Message) error {
	bad := s.begin(messages)
	if len(bad) == 0 {
		return nil
	}
	err := s.fail(ctx, bad)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
	_, isNamed := errors.AsType[*PublishError](err)
	for _, m := range messages {
		if m.Type != "bad" && isNamed {
			s.gone[m.ID] = true
		} else if m.Type != "bad" {
			s.doubted[m.Key] = true
		}
	}
	return err
}

// begin notes a call, and returns the bad ones in it.
func (s *street) begin(messages []Message) (bad []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if s.down || m.Type == "bad" {
			bad = append(bad, m)
		}
	}
	if len(bad) == 0 {
		for _, m := range messages {
			s.gone[m.ID] = true
		}
		return nil
	}
	s.failed++
	s.largest = max(s.largest, len(messages))
	for _, m := range s.waiting {
		if m.Type != "bad" && !s.gone[m.ID] && !s.doubted[m.Key] && m.CreatedAt.Before(s.ended.Add(-turnOfTrial)) {
			s.overdue++
		}
	}
	return bad
}

func (s *street) add(topic, key, kind string) {
	s.last++
	id := fmt.Sprint(s.last)
	s.waiting = append(s.waiting, store.Queued{Seq: s.last, ID: id, Topic: topic, Key: key, Type: kind, CreatedAt: time.Now()})
	s.since[id] = s.failed
}

// read is what a worker reads.
func (s *street) read() *batch {
	b, now := &batch{alone: map[int64]*lone{}}, time.Now()
	for _, isHeld := range []bool{true, false} {
		for _, m := range s.waiting {
			as := s.held.keys[keyOf(&m)]
			switch {
			case len(b.messages)-b.held == s.config.BatchSize:
			case isHeld && as != nil && !as.due.After(now):
				if b.messages, b.held = append(b.messages, m), b.held+1; as.alone != nil {
					b.alone[m.Seq] = as.alone
				}
			case !isHeld && as == nil:
				b.messages = append(b.messages, m)
			}
		}
	}
	return b
}

// settle does what a worker does with what came of a batch.
func (s *street) settle(o *outcome) {
	for i := range o.failed {
		f := &o.failed[i]
		if _, isFound := s.found[f.message.ID]; !isFound {
			s.found[f.message.ID] = s.failed - s.since[f.message.ID]
		}
		at := slices.IndexFunc(s.waiting, func(m store.Queued) bool { return m.Seq == f.message.Seq })
		s.waiting[at].Attempts = f.attempts
		if s.held.fail(f, s.config); f.bury != nil {
			s.held.remove(keyOf(&f.message))
			s.gone[f.message.ID] = true
			s.dead++
		}
	}
	for _, key := range o.gone {
		s.held.remove(key)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(m store.Queued) bool { return s.gone[m.ID] })
}

// run relays for as long as it is told. Tick adds what comes, each quarter of a second.
func (s *street) run(lasts time.Duration, tick func(n int)) {
	began := time.Now()
	for n := 0; time.Since(began) < lasts; {
		s.mu.Lock()
		for ; time.Since(began) >= time.Duration(n)*time.Second/4; n++ {
			tick(n)
		}
		oldest := slices.IndexFunc(s.waiting, func(m store.Queued) bool { return m.Type != "bad" && !s.gone[m.ID] })
		if oldest >= 0 {
			s.latest = max(s.latest, time.Since(s.waiting[oldest].CreatedAt))
		}
		var next *batch
		if s.to.isOpen(time.Now()) {
			next = s.read()
		}
		s.mu.Unlock()
		if next != nil {
			s.to.take(s.t.Context(), next)
		}
		s.await(time.After(50 * time.Millisecond))
	}
	for s.to.busy > 0 {
		s.await(nil)
	}
}

func (s *street) await(pause <-chan time.Time) {
	select {
	case l := <-s.to.ended:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to.end(l, s.config)
		s.settle(l.did)
	case <-pause:
	}
}

// good adds five good ones, of so many topics and keys.
func (s *street) good(topics, keys int) {
	for range 5 {
		s.add(fmt.Sprint("t", int(s.last)%topics), fmt.Sprint("k", int(s.last)%keys), "good")
	}
}

// after fails after a while, without a word of which message it is about.
func after(took time.Duration) func(context.Context, []Message) error {
	return func(context.Context, []Message) error {
		time.Sleep(took)
		return errors.New("no word of which")
	}
}

const unique = 1 << 30 // keys

// However long a call takes that fails: whatever is known of it, or has failed together, outlives the turn that it has taken up. Between two of them all
// leaves that has come meanwhile.
func TestMessageThatFailsSlowlyIsFoundInAFewCallsAndOthersLeaveBetweenThem(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 30 * time.Second} {
		for _, topics := range []int{1, 2, 5, 50} {
			for _, topic := range []string{"t0", "its own"} {
				for _, keys := range []int{200, unique} {
					t.Run(fmt.Sprint(took, " ", topic, " beside ", topics, " topics, keys ", keys), func(t *testing.T) {
						onStreet(t, after(took), func(s *street) {
							s.run(20*took+10*time.Second, func(n int) {
								if n == 10 {
									s.add(topic, "bad", "bad")
								}
								s.good(topics, keys)
							})
							if len(s.found) != 1 {
								s.t.Fatalf("it was not found in %d calls, %d messages wait", s.failed, len(s.waiting))
							}
							for _, n := range s.found {
								if most := bits.Len(uint(s.largest)) + 4; n > most {
									s.t.Errorf("it was found by the %d-th call that failed, not by the %d-th", n, most)
								}
							}
							s.isPunctual(4 * took)
						})
					})
				}
			}
		}
	}
}

// isPunctual holds good ones to their promise: those that were in no call that has failed leave before the next one that fails, and none is later
// than so long.
func (s *street) isPunctual(late time.Duration) {
	s.t.Helper()
	if s.overdue > 0 {
		s.t.Errorf("good ones were overdue %d times when a call began that failed", s.overdue)
	}
	if s.latest > late+2*time.Second {
		s.t.Errorf("a good one was %v late, not %v", s.latest, late)
	}
}

// Each of them fails at least twice, and takes its time. The others wait for the one call that is under way; those that were in a call with them wait until they are
// told apart.
func TestManyMessagesThatFailSlowlyHoldUpOthersForACallEach(t *testing.T) {
	const took = 2 * time.Second
	onStreet(t, after(took), func(s *street) {
		s.run(2*time.Minute, func(n int) {
			for i := range 10 {
				if n == 10 {
					s.add("its own", fmt.Sprint("bad ", i), "bad")
				}
			}
			s.good(2, 200)
		})
		for id, n := range s.found {
			if most := 3*10 + bits.Len(uint(s.largest)); n > most {
				s.t.Errorf("%s was found by the %d-th call that failed, not by the %d-th", id, n, most)
			}
		}
		if len(s.found) != 10 {
			s.t.Errorf("%d were found", len(s.found))
		}
		s.isPunctual(13 * took)
	})
}

// They are found as fast as they come, and the good ones that wait are no more than what has come during a few calls.
func TestMessagesThatFailSlowlyAndKeepComingHoldUpOthersForAFewCalls(t *testing.T) {
	const took, turn = 2 * time.Second, 40 // quarters of a second
	t.Parallel()
	for _, keys := range []int{200, unique} {
		t.Run(fmt.Sprint("keys ", keys), func(t *testing.T) {
			onStreet(t, after(took), func(s *street) {
				added := 0
				s.run(10*time.Minute, func(n int) {
					if n%turn == turn-1 {
						s.add("t0", fmt.Sprint("bad ", n), "bad")
						added++
					}
					s.good(1, keys)
				})
				if len(s.found) < added-2 {
					s.t.Errorf("%d of %d were found", len(s.found), added)
				}
				if s.latest > 15*took {
					s.t.Errorf("a good one was %v late", s.latest)
				}
			})
		})
	}
}

// What was found is tried again in a fifth of the time, however many there are and however long a call takes.
func TestMessagesThatFailSlowlyAreTriedAgainInAFifthOfTheTime(t *testing.T) {
	const took, bad, lasts = 5 * time.Second, 10, 30 * time.Minute
	onStreet(t, after(took), func(s *street) {
		s.config.MaxAttempts = 1000
		s.run(5*time.Minute, func(n int) {
			for i := range bad {
				if n == 10 {
					s.add("its own", fmt.Sprint("bad ", i), "bad")
				}
			}
			s.good(2, 200)
		})
		if len(s.found) != bad {
			s.t.Fatalf("%d were found", len(s.found))
		}
		before := s.failed
		s.latest = 0
		s.run(lasts, func(int) { s.good(2, 200) })
		if calls := s.failed - before; calls > int(lasts/took/5)+1 || calls < bad {
			s.t.Errorf("%d calls of %v have failed in %v", calls, took, lasts)
		}
		s.isPunctual(took)
	})
}

// A Publisher hangs for one message until the call is over, and says so: that is no fault of those beside it, nor of one that leaves when it is alone.
func TestMessageThatIsNamedWithTheEndOfItsCallsIsFound(t *testing.T) {
	hang := func(ctx context.Context, bad []Message) error {
		<-ctx.Done()
		named := &PublishError{Failed: map[string]error{}}
		for _, m := range bad {
			named.Failed[m.ID] = fmt.Errorf("publish: %w", ctx.Err())
		}
		return named
	}
	onStreet(t, hang, func(s *street) {
		s.config.PublishTimeout = 4 * time.Second
		s.run(2*time.Minute, func(n int) {
			if n == 10 {
				s.add("its own", "bad", "bad")
			}
			s.good(1, 200)
		})
		for _, n := range s.found {
			if n > 4 {
				s.t.Errorf("it was found by the %d-th call", n)
			}
		}
		if len(s.found) != 1 {
			s.t.Errorf("it was not found in %d calls", s.failed)
		}
		s.isPunctual(4 * time.Second)
	})
}

// Every call fails, and takes its time: no attempt is counted, and it is not asked without a pause. What waits leaves when it is there again.
func TestDestinationThatFailsSlowlyIsAwayAndCountsNothing(t *testing.T) {
	const took, lasts = time.Second, 10 * time.Minute
	onStreet(t, after(took), func(s *street) {
		s.run(5*time.Second, func(int) { s.good(2, 200) })
		s.down = true
		s.run(lasts, func(int) { s.good(2, 200) })
		if len(s.found) > 0 || s.failed > int(lasts/took)*2/3 {
			s.t.Errorf("%d are held back after %d calls", len(s.found), s.failed)
		}
		s.down = false
		s.run(5*time.Second, func(int) {})
		if len(s.waiting) > 0 || s.dead > 0 {
			s.t.Errorf("%d wait, %d are dead", len(s.waiting), s.dead)
		}
	})
}
