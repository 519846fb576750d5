package inbox

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// circuit is the circuit breaker of one consumer on one pool, in this process. It is closed while
// messages are tried.
//
// If the handlers of a consumer fail with one message after another, the messages are not the
// cause: a service that the handlers call is unavailable, or the handlers are broken. So after some
// failures in a row the circuit opens, and the consumer pauses. After the pause it probes: it tries
// messages one by one until one is handled, which closes the circuit. If all messages of the probe
// fail, the next pause is twice as long, and the next probe has eight times as many messages. So
// many failing messages do not block later ones for long. Only the failure of the first message of
// a probe counts. It has to count: if no other messages arrive, the failing messages would
// otherwise never become dead letters.
type circuit struct {
	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // the current one, 0 while the circuit is closed
	until    time.Time     // the end of the pause
	probes   int           // that have failed since the circuit opened
	probing  bool          // a call is trying messages of the probe

	// The current probe, by one call or by several.
	left  int       // how many further messages may be tried
	tried int       // how many have failed
	end   time.Time // no message is tried later
}

const (
	probeGrowth = 8
	maxProbe    = 1000
)

type circuitID struct {
	pool     weak.Pointer[pgxpool.Pool]
	consumer string
}

var circuits sync.Map // from circuitID to *circuit

// circuitOf returns the circuit that all calls of a consumer on a pool share. It is removed with
// the pool.
func circuitOf(pool *pgxpool.Pool, consumer string) *circuit {
	id := circuitID{weak.Make(pool), consumer}
	if c, ok := circuits.Load(id); ok {
		return c.(*circuit)
	}
	c, loaded := circuits.LoadOrStore(id, &circuit{})
	if !loaded {
		runtime.AddCleanup(pool, func(id circuitID) { circuits.Delete(id) }, id)
	}
	return c.(*circuit)
}

// admit reports whether a call may try messages. If until is not zero, it has to wait until then.
// If probe is set, the call has to try messages one by one, and to report the result or to leave.
func (c *circuit) admit(now time.Time) (until time.Time, probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pause == 0:
		return time.Time{}, false
	case now.Before(c.until):
		return c.until, false
	case c.probing:
		return now.Add(c.pause), false
	}
	if c.left == 0 || now.After(c.end) {
		c.left, c.tried, c.end = 1, 0, now.Add(c.pause)
		for range c.probes {
			c.left = min(c.left*probeGrowth, maxProbe)
		}
	}
	c.probing = true
	return time.Time{}, true
}

// counts reports whether a failure in a probe counts against its message.
func (c *circuit) counts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tried == 0
}

// failed records a failed message, and reports whether the probe continues. afterHandled reports
// whether a message was handled before it in the same group. A message that is not of the probe may
// fail while the circuit is open, because its attempt began before.
func (c *circuit) failed(s *settings, afterHandled, ofProbe bool, now time.Time) (probing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if afterHandled && c.pause == 0 {
		c.failures = 0
	}
	c.failures++
	switch {
	case s.circuit == 0:
		return false
	case c.pause == 0 && c.failures >= s.circuit:
		c.pause = min(s.minBackoff, s.maxPause)
	case c.pause > 0 && ofProbe:
		c.tried++
		if c.left--; c.left > 0 && !now.After(c.end) {
			return true
		}
		c.left, c.tried, c.probing = 0, 0, false
		c.probes++
		c.pause = min(2*c.pause, s.maxPause)
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
	c.failures, c.pause, c.probes, c.probing, c.left, c.tried = 0, 0, 0, false, 0, 0
}

// leave releases the probe at the end of the call that has begun it. The next call continues the
// probe.
func (c *circuit) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// pace decides how many messages of a call are tried in one transaction, and whether any are. A
// failure rolls back its whole group. So the room shrinks after a failure, to what was handled
// before it, and grows after a group without a failure. That keeps the number of rows that a call
// writes proportional to its messages, however many of them fail.
type pace struct {
	settings *settings
	circuit  *circuit
	room     int  // the largest size of the next group
	probing  bool // the call tries the messages of a probe
}

// admit returns when the call may try messages, or the zero time if it may now.
func (p *pace) admit() time.Time {
	if p.settings.circuit == 0 || p.probing {
		return time.Time{}
	}
	until, probe := p.circuit.admit(time.Now())
	if probe {
		p.probing, p.room = true, 1
	}
	return until
}

// failed records a failed message, and how many messages of its group were handled before it.
func (p *pace) failed(handled int) {
	p.room = max(2*handled, p.room/8, 1)
	p.probing = p.circuit.failed(p.settings, handled > 0, p.probing, time.Now())
}

// counts reports whether a failure counts against its message.
func (p *pace) counts() bool { return !p.probing || p.circuit.counts() }

// passed records a group without a failure. handled reports whether it had a message to handle; if
// not, the group does not end a probe.
func (p *pace) passed(handled bool) {
	if handled {
		p.circuit.succeeded()
		p.probing = false
	}
	if !p.probing {
		p.room = min(2*p.room, 1<<30)
	}
}

// leave ends the call.
func (p *pace) leave() {
	if p.probing {
		p.circuit.leave()
	}
}
