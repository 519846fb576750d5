package pgproxy

import (
	"slices"
	"strings"
	"sync"
)

// Trap carries out an action when a statement or a byte reaches a point.
type Trap struct {
	proxy  *Proxy
	point  Point
	action Action
	code   string // SQLSTATE of the error that replaces the answer, or ""
	each   bool
	fired  chan Event

	mu       sync.Mutex
	taken    bool // the trap has caught a statement, or has sprung
	disarmed bool
	count    int
}

// firedLen is how many events the channel of an ArmEach trap buffers.
const firedLen = 1024

// Arm sets a trap that springs once, at the first statement that reaches the point. If several
// traps are armed, the proxy tries them in the order of Arm, and at most one of them catches a
// statement.
func (p *Proxy) Arm(at Point, do Action) *Trap {
	return p.arm(&Trap{point: at, action: do, fired: make(chan Event, 1)})
}

// ArmEach sets a trap that springs at every statement that reaches the point, until Disarm.
func (p *Proxy) ArmEach(at Point, do Action) *Trap {
	return p.arm(&Trap{point: at, action: do, fired: make(chan Event, firedLen), each: true})
}

// Replace replaces answers by an error with the SQLSTATE code, until Disarm. It replaces the answer
// of every statement that match selects, if the command tag of the answer begins with tag. The
// server has executed the statement.
func (p *Proxy) Replace(match Match, tag, code string) *Trap {
	return p.arm(&Trap{point: AfterAnswer(match, tag), code: code, fired: make(chan Event, firedLen), each: true})
}

func (p *Proxy) arm(t *Trap) *Trap {
	t.proxy = p
	p.traps.add(t)
	return t
}

// Fired returns a channel that receives an event each time the trap has sprung and its action was
// carried out. The channel of an ArmEach trap buffers 1024 events and drops later ones.
func (t *Trap) Fired() <-chan Event { return t.fired }

// Count returns how often the trap has sprung.
func (t *Trap) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Disarm stops the trap from catching further statements or bytes. If the trap has already caught a
// statement, its action may still be carried out.
func (t *Trap) Disarm() {
	t.mu.Lock()
	t.disarmed = true
	t.mu.Unlock()
	t.proxy.traps.remove(t)
}

// Taken reports whether the trap has caught a statement or has sprung. A disarmed trap that is
// taken may still spring.
func (t *Trap) Taken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// take claims the trap for a statement. It returns false if the trap is disarmed, or if it springs
// only once and is already taken.
func (t *Trap) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.disarmed || t.taken && !t.each {
		return false
	}
	t.taken = true
	return true
}

// giveBack frees the trap for another statement, because the caught statement will never reach the
// point of the trap.
func (t *Trap) giveBack() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
}

// wants reports whether a statement that was answered with this command tag springs the trap.
func (t *Trap) wants(tag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	begins := func(want string) bool { return strings.HasPrefix(tag, want) }
	return !t.disarmed && (len(t.point.tags) == 0 || slices.ContainsFunc(t.point.tags, begins))
}

// report counts that the trap has sprung and sends the event to the channel of Fired. An event that
// does not fit into the channel is dropped.
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

// strike is a trap that has caught something and waits to spring at a position in a stream. event
// is what the trap then reports.
type strike struct {
	trap  *Trap
	event Event
}

// abandon frees the trap, which cannot spring any more because the stream has ended before its
// position.
func (s *strike) abandon() {
	if s != nil {
		s.trap.giveBack()
	}
}

type traps struct{ set[*Trap] }

// beforePipeline reports whether pipelines must be held until they are complete.
func (t *traps) beforePipeline() bool {
	return slices.ContainsFunc(t.all(), func(trap *Trap) bool { return trap.point.place == beforePipeline })
}

// choose returns the first trap that acts on the way to the server, and the statement that it
// caught. AfterAnswer traps are not returned: choose attaches them to their statements.
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

// within returns the trap at the lowest offset in the next n bytes of a stream, and the number of
// bytes before that offset.
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
	p.passed = end + 1 // the trap must not spring again when the stream is resumed
	return first, int(end - p.sent.Load())
}

// guards reports whether the trap is set at a byte of this stream that was not forwarded yet.
func (t *Trap) guards(p *pipe) bool {
	at := t.point
	return at.place == atByte && at.dir == p.dir && at.conn == p.conn &&
		at.offset >= p.sent.Load() && at.offset >= p.passed
}
