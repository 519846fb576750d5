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
// consumer pauses, in this process. When the pause is over one message is tried. If it is handled, the others are; if it fails, which
// is counted as ever, the next pause is twice as long.

// circuit is that of one consumer on one pool. It is closed while messages are tried.
type circuit struct {
	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // the current one, 0 while the circuit is closed
	until    time.Time     // when that is over
	probing  bool          // some call is trying one message
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
	probe bool      // one message may be tried, and the call has to tell how that went, or leave
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
	c.probing = true
	return admission{probe: true}
}

// failed counts a message that was tried in vain, directly behind the one before or behind some that were handled. Others than that
// of the probe may have been under way when the circuit opened.
func (c *circuit) failed(s *settings, behindHandled, probe bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if behindHandled && c.pause == 0 {
		c.failures = 0
	}
	c.failures++
	switch {
	case s.circuit == 0:
		return
	case c.pause == 0 && c.failures >= s.circuit:
		c.pause = min(s.minPause, s.longestPause)
	case c.pause > 0 && probe:
		c.pause = min(2*c.pause, s.longestPause)
		c.probing = false
	default:
		return
	}
	c.until = now.Add(c.pause)
}

// succeeded closes the circuit: a message was handled.
func (c *circuit) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures, c.pause, c.probing = 0, 0, false
}

// leave gives up a probe that has found nothing to try.
func (c *circuit) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}
