package inbox

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A consumer whose handlers fail with one message after the other suffers from something that no message is to blame for: what
// they call is away, or they are broken. So after some failures in a row, without a message that was handled in between, the
// consumer pauses, in this process. When the pause is over it probes: messages are tried one by one, until one is handled. Then the others
// are tried as well. If all fail, the next pause is twice as long, and the probe behind it has eight times as many messages, so that
// many that are bad do not keep back what is behind them. The first one of a probe is counted as ever, or what is bad would stay for ever where
// nothing else comes; the others are put off without being counted, as they may be innocent.

// circuit is that of one consumer on one pool. It is closed while messages are tried.
type circuit struct {
	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // the current one, 0 while the circuit is closed
	until    time.Time     // when that is over
	probes   int           // in vain, since the circuit is open
	probe    probe         // the one that is under way, if its end is not over
	probing  bool          // some call is trying a message of it
}

// probe is what is tried between two pauses, by one call or by several.
type probe struct {
	left  int       // how many further messages may be tried
	tried int       // in vain
	end   time.Time // no other is tried behind it: that may take as long as the pause has
}

const (
	probeGrowth = 8
	maxProbe    = 1000
)

func newProbe(before int, now time.Time, pause time.Duration) probe {
	left := 1
	for range before {
		left = min(left*probeGrowth, maxProbe)
	}
	return probe{left: left, end: now.Add(pause)}
}

type circuitName struct {
	pool     weak.Pointer[pgxpool.Pool]
	consumer string
}

var circuits sync.Map // by circuitName

// circuitOf returns the circuit that all calls of a consumer share. It is forgotten with the pool.
func circuitOf(pool *pgxpool.Pool, consumer string) *circuit {
	name := circuitName{weak.Make(pool), consumer}
	if found, ok := circuits.Load(name); ok {
		return found.(*circuit)
	}
	found, known := circuits.LoadOrStore(name, &circuit{})
	if !known {
		runtime.AddCleanup(pool, func(name circuitName) { circuits.Delete(name) }, name)
	}
	return found.(*circuit)
}

// admission is what a circuit says to a call.
type admission struct {
	probe bool      // messages may be tried one by one, and the call has to tell how that went, or leave
	until time.Time // no message may be tried before, unless it is zero
}

// admit tells whether messages may be tried.
func (c *circuit) admit(now time.Time) admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pause == 0:
		return admission{}
	case now.Before(c.until):
		return admission{until: c.until}
	case c.probing:
		return admission{until: now.Add(c.pause)}
	}
	if c.probing = true; c.probe.left == 0 || now.After(c.probe.end) {
		c.probe = newProbe(c.probes, now, c.pause)
	}
	return admission{probe: true}
}

// counts reports whether the failure of a probe counts.
func (c *circuit) counts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probe.tried == 0
}

// failed counts a message that was tried in vain, directly behind the one before or behind some that were handled. Others than that
// of the probe may have been under way when the circuit opened. It reports whether the probe goes on.
func (c *circuit) failed(s *settings, behindHandled, ofProbe bool, now time.Time) (goesOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if behindHandled && c.pause == 0 {
		c.failures = 0
	}
	c.failures++
	switch {
	case s.circuit == 0:
		return false
	case c.pause == 0 && c.failures >= s.circuit:
		c.pause = min(s.minPause, s.longestPause)
	case c.pause > 0 && ofProbe:
		c.probe.tried++
		if c.probe.left--; c.probe.left > 0 && !now.After(c.probe.end) {
			return true
		}
		c.probe = probe{}
		c.probes++
		c.pause = min(2*c.pause, s.longestPause)
		c.probing = false
	default:
		return false
	}
	c.until = now.Add(c.pause)
	return false
}

// succeeded closes the circuit: a message was handled.
func (c *circuit) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures, c.pause, c.probing = 0, 0, false
	c.probes, c.probe = 0, probe{}
}

// leave gives up a probe that has found nothing more to try: the next call goes on with it.
func (c *circuit) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}
