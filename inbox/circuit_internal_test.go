package inbox

import (
	"testing"
	"time"
)

// failingCalls makes calls of one failing message each, by a simulated clock, until done.
func failingCalls(c *circuit, s *settings, took time.Duration, done func(now time.Time, tried int) bool) (pauses []time.Duration, counted int) {
	now := time.Now()
	for tried := 0; !done(now, tried); {
		until, probe := c.admit(now)
		if !until.IsZero() {
			pauses = append(pauses, until.Sub(now))
			now = until
			continue
		}
		if !probe || c.counts() {
			counted++
		}
		tried++
		now = now.Add(took)
		c.failed(s, false, probe, now)
		c.leave()
	}
	return pauses, counted
}

func sum(pauses []time.Duration) (total time.Duration) {
	for _, p := range pauses {
		total += p
	}
	return total
}

// A thousand failing messages are before a good one, and each attempt takes two milliseconds. The
// good message is tried within 40 s, and few attempts are counted.
func TestCircuit_TriesAThousandFailingMessagesIn40s(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 20, minBackoff: time.Second, maxPause: time.Minute}
	pauses, counted := failingCalls(&circuit{}, s, 2*time.Millisecond, func(_ time.Time, tried int) bool { return tried == 1000 })
	if sum(pauses) > 38*time.Second || counted > 26 {
		t.Errorf("the pauses take %v, and %d attempts are counted", sum(pauses), counted)
	}
}

func TestCircuit_ProbeIsNoLongerThanItsPause(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	end := time.Now().Add(time.Hour)
	pauses, _ := failingCalls(&circuit{}, s, 10*time.Second, func(now time.Time, _ int) bool { return now.After(end) })
	if share := float64(sum(pauses)) / float64(time.Hour); share < 0.4 {
		t.Errorf("the consumer pauses for %.2f of the time, want 0.4 or more", share)
	}
}

// After the circuit has closed, its pauses begin with the shortest one again.
func TestCircuit_ResetsWhenItCloses(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	for range 2 {
		pauses, _ := failingCalls(c, s, time.Millisecond, func(_ time.Time, tried int) bool { return tried == 11 }) // 1, and probes of 1 and 8
		if len(pauses) != 3 || pauses[0] != time.Second || pauses[2] != 4*time.Second {
			t.Errorf("the pauses are %v", pauses)
		}
		c.succeeded()
	}
}
