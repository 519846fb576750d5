package pgproxy

import (
	"slices"
	"strings"
	"sync"
)

// Trap is an action that waits at a point.
type Trap struct {
	proxy  *Proxy
	point  Point
	action Action
	each   bool
	fired  chan Event

	mu       sync.Mutex
	taken    bool // has taken hold of a statement, or has sprung
	disarmed bool
	count    int
}

// firedLen is how many events of a trap that springs often are kept for a test that does not look.
const firedLen = 1024

// Arm sets a trap that springs once: at the first statement that reaches the point. Traps are tried in the order in
// which they were armed, and a statement is caught by one.
func (p *Proxy) Arm(at Point, do Action) *Trap {
	return p.arm(&Trap{point: at, action: do, fired: make(chan Event, 1)})
}

// ArmEach sets a trap that springs at every statement that reaches the point, until it is disarmed.
func (p *Proxy) ArmEach(at Point, do Action) *Trap {
	return p.arm(&Trap{point: at, action: do, fired: make(chan Event, firedLen), each: true})
}

func (p *Proxy) arm(t *Trap) *Trap {
	t.proxy = p
	p.traps.add(t)
	return t
}

// Fired receives an event whenever the trap has sprung: the action has been carried out. Of a trap that springs often,
// the channel keeps the first 1024 events that nobody has received.
func (t *Trap) Fired() <-chan Event { return t.fired }

// Count is how often the trap has sprung.
func (t *Trap) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Disarm makes sure that the trap takes hold of nothing more. What has been decided still happens.
func (t *Trap) Disarm() {
	t.mu.Lock()
	t.disarmed = true
	t.mu.Unlock()
	t.proxy.traps.remove(t)
}

func (t *Trap) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.disarmed || t.taken && !t.each {
		return false
	}
	t.taken = true
	return true
}

// giveBack makes the trap wait for another statement, because this one will never reach its point.
func (t *Trap) giveBack() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
}

// wants reports whether a statement with this answer has reached the trap's point.
func (t *Trap) wants(tag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	begins := func(want string) bool { return strings.HasPrefix(tag, want) }
	return !t.disarmed && (len(t.point.tags) == 0 || slices.ContainsFunc(t.point.tags, begins))
}

func (t *Trap) report(e Event) {
	t.mu.Lock()
	t.count++
	t.mu.Unlock()
	if !t.each {
		t.proxy.traps.remove(t)
	}
	select {
	case t.fired <- e:
	default:
	}
}

// strike is what a trap does at a place in a stream.
type strike struct {
	trap  *Trap
	event Event
}

// abandon is for a strike that is never carried out, because the stream ends in front of it.
func (s *strike) abandon() {
	if s != nil {
		s.trap.giveBack()
	}
}

type traps struct{ set[*Trap] }

// beforePipeline reports whether pipelines have to be held back until they are complete.
func (t *traps) beforePipeline() bool {
	return slices.ContainsFunc(t.all(), func(trap *Trap) bool { return trap.point.place == beforePipeline })
}

// choose returns the first trap that acts on the way to the server, and the statement that it caught. A trap that waits
// for an answer goes with its statement.
func (t *traps) choose(runs []*run, held bool) (*Trap, *run) {
	for _, r := range runs {
		trap := t.take(r.Statement, held)
		if trap == nil {
			continue
		}
		if trap.point.place != afterAnswer {
			return trap, r
		}
		r.trap = trap
	}
	return nil, nil
}

func (t *traps) take(s Statement, held bool) *Trap {
	for _, trap := range t.all() {
		switch trap.point.place {
		case atByte:
			continue
		case beforePipeline:
			if !held {
				continue // armed in the middle of this pipeline
			}
		}
		if trap.point.match.accepts(s) && trap.take() {
			return trap
		}
	}
	return nil
}

// within returns the trap at the first of the next n bytes of a stream that has one, and how many bytes are in front.
func (t *traps) within(p *pipe, n int) (*Trap, int) {
	var first *Trap
	end := p.sent.Load() + int64(n)
	for _, trap := range t.all() {
		if at := trap.point; trap.guards(p) && at.offset < end && trap.take() {
			first.giveBack()
			first, end = trap, at.offset
		}
	}
	if first == nil {
		return nil, 0
	}
	p.passed = end + 1 // it does not spring again when the stream is resumed
	return first, int(end - p.sent.Load())
}

// guards reports whether the trap is at a byte of this stream that is still to come.
func (t *Trap) guards(p *pipe) bool {
	at := t.point
	return at.place == atByte && at.dir == p.dir && p.hear != nil && (at.conn == nil || at.conn == p.conn) &&
		at.offset >= p.sent.Load() && at.offset >= p.passed
}
