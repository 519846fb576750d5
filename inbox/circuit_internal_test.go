package inbox

import (
	"testing"
	"time"
)

// A thousand failing messages are before a good one, and each attempt takes two milliseconds. The
// good message is tried within 40 s of a simulated clock, and few attempts are counted.
func TestCircuit_TriesAThousandFailingMessagesIn40s(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 20, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	begin := time.Now()
	now := begin
	counted := 0
	for tried := 0; tried < 1000; {
		until, probe := c.admit(now)
		if !until.IsZero() {
			now = until
			continue
		}
		if !probe || c.counts() {
			counted++
		}
		tried++
		now = now.Add(2 * time.Millisecond)
		c.failed(s, false, probe, now)
		c.leave() // each call has one message
	}
	if took := now.Sub(begin); took > 40*time.Second || counted > 26 {
		t.Errorf("the good message is tried after %v, and %d attempts are counted", took, counted)
	}
}

func TestCircuit_ProbeIsNoLongerThanItsPause(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	begin := time.Now()
	now := begin
	trying := time.Duration(0)
	for now.Sub(begin) < time.Hour {
		until, probe := c.admit(now)
		if !until.IsZero() {
			now = until
			continue
		}
		now, trying = now.Add(10*time.Second), trying+10*time.Second
		c.failed(s, false, probe, now)
		c.leave()
	}
	if share := float64(trying) / float64(now.Sub(begin)); share > 0.6 {
		t.Errorf("messages are tried for %.2f of the time, want at most 0.6", share)
	}
}

// After the circuit has closed, its pauses begin with the shortest one again.
func TestCircuit_ResetsWhenItCloses(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	now := time.Now()
	for range 2 {
		pauses := []time.Duration{}
		for len(pauses) < 4 {
			until, probe := c.admit(now)
			if !until.IsZero() {
				pauses = append(pauses, until.Sub(now))
				now = until
				continue
			}
			now = now.Add(2 * time.Millisecond)
			c.failed(s, false, probe, now)
			c.leave()
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			if pauses[i] != want {
				t.Errorf("the pauses are %v", pauses)
			}
		}
		c.succeeded()
	}
}
