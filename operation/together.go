package operation

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// How Calls are made together. Unlike a Call that is alone, each has a row in idem.steps while it is under way: begun, or not sent if
// it has certainly not left. The value of such a row is the number of tries.

// together are calls that are made at the same time.
type together struct {
	op    *Op
	calls []*parallelCall
	rest  *rest
}

// parallelCall is one of the calls. It has an Op of its own while it is made, so that what stops it does not stop the others.
type parallelCall struct {
	*outside
	op      *Op
	open    bool // its outcome is not known
	dated   bool // it is on record when it was begun
	stored  []byte
	err     error
	elapsed func() time.Duration // since it was begun
	escaped *escape              // from its function
}

// settle brings every call to an outcome, or stops the run.
func (c *together) settle() error {
	op := c.op
	if c.isNew() && (op.work.undoing || op.work.cancelled) {
		op.seq -= len(c.calls)
		return op.halt(ended, nil)
	}
	for _, call := range c.calls {
		if op.recall(call); op.stopped != nil {
			return op.stopped
		}
	}
	if err := c.begin(); err != nil {
		return err
	}
	c.make()
	for _, call := range c.unsettled() {
		op.collect(call)
	}
	for _, call := range c.calls {
		call.escaped.again(op, call.step.name)
	}
	if s := c.stop(); s != nil {
		return c.leaveOff(s)
	}
	return nil
}

// isNew reports whether none of the calls is on record.
func (c *together) isNew() bool {
	return !slices.ContainsFunc(c.calls, func(p *parallelCall) bool { _, ok := c.op.work.recorded[p.step.seq]; return ok })
}

func (c *together) unsettled() (open []*parallelCall) {
	for _, call := range c.calls {
		if call.open {
			open = append(open, call)
		}
	}
	return open
}

// recall finds out what is known of a call.
func (op *Op) recall(call *parallelCall) {
	w, s := op.work, call.step
	if known, ok := w.returned[s.seq]; ok && s.found == nil && known.Kind == s.kind && known.Name == s.name { // in an earlier run of this process
		op.remember(s, known.Outcome, known.Value)
		s.found = &known
	}
	if s.found != nil {
		call.stored, call.err = op.replay(s)
		return
	}
	recorded, onRecord := w.recorded[s.seq]
	call.doubt = recorded.Outcome == store.StepBegun
	switch {
	case w.replays:
		_ = op.halt(suspended, nil)
		return
	case !call.doubt && w.undoing && !w.cancelled:
		_ = op.halt(ended, nil)
		return
	case !call.doubt && w.cancelled: // it is not begun any more
		if !onRecord {
			op.remember(s, store.StepNotSent, nil)
		}
		op.cut, call.err = true, Final(ErrCancelled)
		return
	case recorded.Value != nil:
		call.tries = triesOf(recorded.Value)
	case w.at.Seq == s.seq, w.at.Seq == 0 && w.at.Step == s.name: // it was a Call
		call.tries = w.at.Tries
	}
	call.open = true
}

// begin has the calls that are still to be made on record before the first of them is.
func (c *together) begin() error {
	op, open := c.op, c.unsettled()
	for _, call := range open {
		if err := call.check(); err != nil {
			return op.halt(broken, err)
		}
	}
	fresh, begun := false, time.Now()
	for _, call := range open {
		recorded := op.work.recorded[call.step.seq]
		call.elapsed = func() time.Duration { return time.Since(begun) }
		switch {
		case call.doubt && !recorded.DueAt.IsZero():
			call.elapsed = op.work.since(recorded.DueAt)
		case call.doubt: // it was a Call
			call.elapsed = op.work.elapsed
		}
		if !call.doubt || recorded.DueAt.IsZero() {
			op.begun(call)
			fresh = true
		}
	}
	if fresh {
		if err := op.commit(commit{at: whereIs(open[0])}); err != nil {
			return err
		}
	}
	for _, call := range open {
		call.dated = true
	}
	return nil
}

func whereIs(call *parallelCall) store.At {
	return store.At{Kind: call.step.kind, Step: call.step.name, Seq: call.step.seq}
}

// begun has it recorded that a call is begun, since when, and how often it was tried. When it was begun stays what is on record, or each
// process that the operation passes through would make its window longer.
func (op *Op) begun(call *parallelCall) {
	op.remember(call.step, store.StepBegun, triesValue(call.tries))
	for i := range op.pending {
		if r := &op.pending[i]; r.Step.Seq == call.step.seq && call.doubt {
			r.Pause, r.Keeps = -call.elapsed(), call.dated
		}
	}
}

// make makes the calls, and returns when all have ended.
func (c *together) make() {
	open := c.unsettled()
	r := newRest(len(open))
	c.rest = r
	var ended sync.WaitGroup
	for _, call := range open {
		alone := *c.op.work
		alone.at, alone.returned, alone.elapsed = store.At{}, map[int]store.Step{}, call.elapsed
		call.op = &Op{work: &alone, ctx: c.op.ctx, cancel: c.op.cancel, current: call.step.name}
		call.pauses = func(d time.Duration) error { return r.pause(call.op, d) }
		ended.Add(1)
		go func() {
			defer ended.Done()
			defer r.end()
			call.run()
		}()
	}
	ended.Wait()
}

// run makes one call.
func (p *parallelCall) run() {
	p.escaped = &escape{}
	defer func() {
		if p.escaped != nil {
			p.escaped.panicked, p.escaped.stack = recover(), debug.Stack()
		}
	}()
	p.stored, p.err = p.op.tryOut(p.outside)
	p.escaped = nil
}

// collect takes over the outcome of a call, if it has one. It goes with the next commit.
func (op *Op) collect(call *parallelCall) {
	s, ok := call.op.work.returned[call.step.seq]
	if !ok {
		return
	}
	call.open = false
	op.work.returned[s.Seq] = s
	op.remember(call.step, s.Outcome, s.Value)
}

// stop tells why calls have no outcome, nil if all have one. That the run is over comes before that the operation waits, and that before
// what a person has to do.
func (c *together) stop() *stop {
	var stops []*stop
	for _, call := range c.unsettled() {
		stops = append(stops, call.op.stopped)
	}
	if len(stops) == 0 {
		return nil
	}
	for _, why := range []why{broken, left, again, suspended} {
		if i := slices.IndexFunc(stops, func(s *stop) bool { return s.why == why }); i >= 0 {
			return stops[i]
		}
	}
	all := *stops[0]
	for _, s := range stops[1:] {
		all.reason += "; " + s.reason
		all.cause = cmp.Or(all.cause, s.cause)
	}
	return &all
}

// leaveOff stops the run, and records how far the calls are: what they have returned, which of them have certainly not left, and how
// often they were tried. Where that fails the next process takes those without an outcome for sent.
func (c *together) leaveOff(s *stop) error {
	op, open := c.op, c.unsettled()
	for _, call := range open {
		c.mark(call, s)
	}
	at := whereIs(open[0])
	if s.why == suspended {
		at.Pause = c.rest.left()
		if op.commit(commit{free: true, at: at}) == nil {
			return op.halt(suspended, nil)
		}
		if s = op.stopped; s.why != again && s.why != left {
			return s
		}
		at.Pause = 0
	}
	if len(op.pending) > 0 || op.work.at.Seq != at.Seq {
		op.putDown(commit{always: true, at: at})
	}
	op.stopped = s
	return s
}

// mark has it recorded how far a call is that has no outcome. One that is parked is tried anew once a person has seen to it.
func (c *together) mark(call *parallelCall, s *stop) {
	op, tries := c.op, call.tries
	if s.why == parked {
		tries = 0
	}
	recorded := op.work.recorded[call.step.seq]
	switch {
	case !call.doubt && call.op.stopped.why != parked:
		op.remember(call.step, store.StepNotSent, triesValue(tries))
	case triesOf(recorded.Value) != tries:
		call.tries, call.doubt = tries, true
		op.begun(call)
	}
}

// putDown commits for a run that stops, also if its context has ended.
func (op *Op) putDown(c commit) {
	running := op.ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(running), letGoLimit)
	defer cancel()
	op.close(nil)
	op.ctx, op.stopped = ctx, nil
	_ = op.commit(c)
	op.ctx = running
}
