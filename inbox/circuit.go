package inbox

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// circuit is the circuit breaker of one consumer on one pool, in this process. While it is closed,
// messages are tried normally.
//
// If the handlers of a consumer fail with one message after another, the messages are probably not
// the cause: a service that the handlers call is unavailable, or the handlers are broken. So after
// some failures in a row the circuit opens, and the consumer pauses. After the pause it makes a
// probe: it tries messages one by one until one of them is handled, which closes the circuit. If
// all messages of the probe fail, the next pause is twice as long, and the next probe has eight
// times as many messages. Larger probes soon get past many failing messages to messages that can be
// handled. Only the first failure of a probe counts as an attempt. If none counted, a consumer that
// receives only failing messages would never make dead letters of them.
type circuit struct {
	mu       sync.Mutex
	failures int           // number of failures in a row
	pause    time.Duration // the current pause; 0 while the circuit is closed
	until    time.Time     // the end of the pause
	probes   int           // number of failed probes since the circuit opened
	probing  bool          // a call is trying messages of the probe

	// The current probe, which one call makes, or several calls one after the other.
	left  int       // how many further messages may be tried
	tried int       // how many messages of the probe have failed
	end   time.Time // the probe tries no message after this time
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

// circuitOf returns the circuit that all calls of a consumer on a pool share. The circuit is
// removed when the pool is garbage collected.
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

// admit decides whether a call may try messages. If the result until is not zero, the call must not
// try messages before that time. If the result probe is true, the call must try messages one by
// one, and then report a result or call leave.
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

// counts reports whether a failure in the probe counts as an attempt of its message.
func (c *circuit) counts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tried == 0
}

// failed records a failed message, and reports whether the probe of the call continues.
// afterHandled is true if an earlier message of the same group was handled. ofProbe is true if the
// message is part of the probe. Other messages may fail while the circuit is open, if their
// attempts began before it opened.
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

// succeeded closes the circuit, because a message was handled.
func (c *circuit) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures, c.pause, c.probes, c.probing, c.left, c.tried = 0, 0, 0, false, 0, 0
}

// leave is called when a call ends in the middle of the probe. The next call continues the probe.
func (c *circuit) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// pace decides whether a call may try messages, and how many of them in one transaction. A failure
// rolls back the whole transaction. So the size of the next group shrinks after a failure,
// depending on how many messages were handled before the failing one. The size grows after a group
// without a failure. As a result, the number of rows that a call writes is proportional to its
// messages, however many of them fail.
type pace struct {
	settings *settings
	circuit  *circuit
	room     int  // the maximum size of the next group
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

// failed records a failed message. The parameter handled is the number of messages of its group
// that were handled before the failed one.
func (p *pace) failed(handled int) {
	p.room = max(2*handled, p.room/8, 1)
	p.probing = p.circuit.failed(p.settings, handled > 0, p.probing, time.Now())
}

// counts reports whether a failure counts as an attempt of its message.
func (p *pace) counts() bool { return !p.probing || p.circuit.counts() }

// passed records a group without a failure. The parameter handled is true if the group had a
// message to handle. Only such a group ends a probe.
func (p *pace) passed(handled bool) {
	if handled {
		p.circuit.succeeded()
		p.probing = false
	}
	if !p.probing {
		p.room = min(2*p.room, 1<<30)
	}
}

// leave is called when the call ends.
func (p *pace) leave() {
	if p.probing {
		p.circuit.leave()
	}
}
