package inbox

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A consumer whose handlers fail with one message after the other suffers from something that no message causes: what they call
// is unavailable, or they are broken. So after some failures in a row, without a handled message in between, the circuit opens and
// the consumer pauses, in this process. When the pause is over it probes: messages are tried one by one, until one is handled.
// Then the others are tried as well. If all fail, the next pause is twice as long, and the next probe has eight times as many
// messages, so that many poison messages do not block those behind them. The failure of the first message of a probe counts, or
// poison messages would stay for ever where no other messages come. The others are put off uncounted: they may be innocent.

// circuit is the circuit breaker of one consumer on one pool. It is closed while messages are tried.
type circuit struct {
	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // the current one, 0 while the circuit is closed
	until    time.Time     // when that is over
	probes   int           // that have failed since the circuit opened
	probe    probe         // the current one, until its end
	probing  bool          // a call is trying messages of the probe
}

// probe is what is tried between two pauses, by one call or by several.
type probe struct {
	left  int       // how many further messages may be tried
	tried int       // and have failed
	end   time.Time // no message is tried later: a probe takes no longer than its pause
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

// admission is the answer of a circuit to a call.
type admission struct {
	probe bool      // messages may be tried one by one, and the call has to report how that went, or leave
	until time.Time // no message may be tried before, unless it is zero
}

// admit decides whether messages may be tried.
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

// failed counts a failed message, and reports whether the probe goes on. Messages that are not of the probe may fail while the
// circuit is open: they were under way when it opened.
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
		c.pause = min(s.minBackoff, s.maxPause)
	case c.pause > 0 && ofProbe:
		c.probe.tried++
		if c.probe.left--; c.probe.left > 0 && !now.After(c.probe.end) {
			return true
		}
		c.probe = probe{}
		c.probes++
		c.pause = min(2*c.pause, s.maxPause)
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

// leave gives up a probe that has found nothing more to try. The next call continues it.
func (c *circuit) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// pace is how many messages of a call are tried together, and whether any are. A failure rolls back the rows of its whole group.
// So groups shrink where messages fail, to what was handled before the failure, and grow again where none does: a call writes in
// proportion to its messages, however many of them fail.
type pace struct {
	settings *settings
	circuit  *circuit
	room     int  // of a group
	probing  bool // the call tries messages one by one, to see whether the others are worth it
}

// admit returns until when no message is to be tried: the zero time if one may be.
func (p *pace) admit() time.Time {
	if p.settings.circuit == 0 || p.probing {
		return time.Time{}
	}
	a := p.circuit.admit(time.Now())
	if a.probe {
		p.probing, p.room = true, 1
	}
	return a.until
}

// failed records a failed message, and how many of its group were handled before it.
func (p *pace) failed(handled int) {
	p.room = max(2*handled, p.room/8, 1)
	p.probing = p.circuit.failed(p.settings, handled > 0, p.probing, time.Now())
}

// counts reports whether a failure counts against its message: of a probe only the first one does.
func (p *pace) counts() bool { return !p.probing || p.circuit.counts() }

// passed records a group without a failure. One in which there was nothing to handle does not end a probe.
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
