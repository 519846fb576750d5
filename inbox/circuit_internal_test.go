package inbox

import (
	"testing"
	"time"
)

// A thousand bad messages are in front of a good one, and each takes two milliseconds to fail: on a clock of the test's own, the good one is
// tried within 40 s, and few attempts are counted.
func TestManyBadMessagesKeepNoneFromBeingTriedForLong(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 20, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	begin := time.Now()
	now := begin
	counted := 0
	for tried := 0; tried < 1000; {
		a := c.admit(now)
		if !a.until.IsZero() {
			now = a.until
			continue
		}
		if !a.probe || c.counts() {
			counted++
		}
		tried++
		now = now.Add(2 * time.Millisecond)
		c.failed(s, false, a.probe, now)
		c.leave() // each call has one message
	}
	if took := now.Sub(begin); took > 40*time.Second || counted > 26 {
		t.Errorf("%v, %d attempts are counted", took, counted)
	}
}

// A probe whose messages take long ends when it has taken as long as the pause before it: what is called may be away.
func TestProbeTakesNoLongerThanThePauseBeforeIt(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	begin := time.Now()
	now := begin
	trying := time.Duration(0)
	for now.Sub(begin) < time.Hour {
		a := c.admit(now)
		if !a.until.IsZero() {
			now = a.until
			continue
		}
		now, trying = now.Add(10*time.Second), trying+10*time.Second
		c.failed(s, false, a.probe, now)
		c.leave()
	}
	if share := float64(trying) / float64(now.Sub(begin)); share > 0.6 {
		t.Errorf("it tries for %.2f of the time", share)
	}
}

// When the consumer works again, all is as in the beginning.
func TestProbeThatIsHandledClosesTheCircuit(t *testing.T) {
	t.Parallel()
	s := &settings{circuit: 1, minBackoff: time.Second, maxPause: time.Minute}
	c := &circuit{}
	now := time.Now()
	for range 2 {
		pauses := []time.Duration{}
		for len(pauses) < 4 {
			a := c.admit(now)
			if !a.until.IsZero() {
				pauses = append(pauses, a.until.Sub(now))
				now = a.until
				continue
			}
			now = now.Add(2 * time.Millisecond)
			c.failed(s, false, a.probe, now)
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
