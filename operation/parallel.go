package operation

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// Calls are several calls that are made at the same time. Go adds one, and Wait makes them all:
//
//	calls := operation.Parallel(op)
//	air := operation.Go(calls, "air", operation.Keyed(23*time.Hour), bookAir, cancelAir)
//	room := operation.Go(calls, "room", operation.Keyed(23*time.Hour), bookRoom, cancelRoom)
//	failed := calls.Wait()
//	ticket, err := air.Value()
//
// Each of them is a step with a key, a policy, undos and an outcome of its own. They take their
// positions in the order of Go. One commit before them records all of them as begun, and the next
// commit records what they have returned: together they cost the commits of one Call. If one fails,
// or has to wait for a person, the others still come to their outcomes before the function goes on,
// or the operation parks. A process that takes the operation up after a crash settles each call as
// its policy says.
//
// Between the first Go and Wait no other step is taken. A backoff of 5 seconds or more frees the
// caller or the worker only when no other of the calls is in progress. A panic in the function of a
// call is raised by Wait.
type Calls struct {
	op     *Op
	calls  []*parallelCall
	pauses *pauses
	busy   sync.Mutex // a Go or the Wait is in progress
	opened bool       // by the first Go: no other step is taken
	waited bool
}

// Value is the result of one call of Calls, after Wait.
type Value[T any] struct {
	calls *Calls
	call  *parallelCall // nil if Go was refused
}

// parallelCall is one of the calls. It has an Op of its own while it is made, so that its stop does
// not stop the others.
type parallelCall struct {
	*outside
	verdict verdict
	plan    func() error // keeps the undos of the call
	op      *Op
	open    bool // it has no outcome yet
	dated   bool // its row has the time when it was begun
	stored  []byte
	err     error
	elapsed func() time.Duration // since it was begun
	escaped *escape              // from its function
}

// Parallel returns Calls of this run. It is of no use once the function has returned.
func Parallel(op *Op) *Calls { return &Calls{op: op} }

// Go adds a call, which Wait makes. Its arguments are those of Call.
func Go[T any](calls *Calls, name string, policy Policy, do func(ctx context.Context, key string) (T, error), undo ...Undo[T]) *Value[T] {
	v := &Value[T]{calls: calls}
	if !calls.busy.TryLock() {
		calls.op.misuse("Go %q while another Go, or Wait, of the same Calls is in progress", name)
		return v
	}
	defer calls.busy.Unlock()
	call := calls.add(callRequest(name, &policy, undo))
	if call == nil {
		return v
	}
	op := calls.op
	call.outside = outsideOf(op, call.outside.step, policy, do)
	call.plan = func() error {
		return plan(op, call.step, undo, func() (T, error) { return decode[T](op.work.definition.codec, call.stored) })
	}
	v.call = call
	calls.calls = append(calls.calls, call)
	return v
}

// add takes the position of a call. It returns nil if no step is taken any more.
func (c *Calls) add(r request) *parallelCall {
	op := c.op
	switch {
	case c.waited:
		op.misuse("Go %q behind Wait", r.name)
		return nil
	case !c.opened && !op.taking.TryLock():
		op.misuse("Go %q while another step is taken", r.name)
		return nil
	}
	c.opened = true
	op.grouped = true
	s, v, err := op.ask(r)
	if err == nil && v.do == park && v.reason == ReasonCodeChanged {
		err = op.obey(v)
	}
	if err != nil {
		return nil
	}
	return &parallelCall{outside: &outside{step: s}, verdict: v}
}

// Wait makes the calls, all at the same time, and returns when each of them has an outcome. The
// error joins those of the calls, in the order of Go, and is nil if all have returned a value.
// Calls are waited for once.
func (c *Calls) Wait() error {
	op := c.op
	switch {
	case !c.busy.TryLock():
		return op.misuse("Wait while a Go or another Wait of the same Calls is in progress")
	case c.waited:
		c.busy.Unlock()
		return op.misuse("Wait of the same Calls twice")
	}
	defer c.busy.Unlock()
	c.waited = true
	if !c.opened {
		return op.halted()
	}
	defer op.taking.Unlock()
	op.grouped = false
	if err := op.halted(); err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	var errs []error
	for _, call := range c.calls {
		errs = append(errs, call.err)
	}
	return errors.Join(errs...)
}

// Value returns what the call has returned: the same in the first run and in every later one. It is
// called behind Wait.
func (v *Value[T]) Value() (T, error) {
	var none T
	op := v.calls.op
	if !v.calls.busy.TryLock() {
		return none, op.misuse("Value while Wait is in progress")
	}
	defer v.calls.busy.Unlock()
	switch {
	case op.halted() != nil:
		return none, op.stopped
	case v.call == nil || !v.calls.waited:
		return none, op.misuse("Value before Wait")
	}
	return whole(op, v.call.step.name, func() (T, error) { return result[T](op, v.call.step, v.call.stored, v.call.err) })
}

// settle brings every call to an outcome, or stops the run.
func (c *Calls) settle() error {
	op := c.op
	unwinds := false // a call was never sent, and is not made
	for _, call := range c.calls {
		if op.recall(call); op.stopped != nil {
			return op.stopped
		}
		unwinds = unwinds || call.verdict.do == unwind
	}
	if err := c.begin(); err != nil {
		return err
	}
	c.make()
	for _, call := range c.unsettled() {
		unwinds = op.collect(call) || unwinds
	}
	for _, call := range c.calls {
		call.escaped.again(op, call.step.name)
		if !call.open && call.err == nil && call.verdict.do != unwind {
			if err := call.plan(); err != nil {
				return err
			}
		}
	}
	if s := c.stop(); s != nil {
		return c.suspend(s)
	}
	if unwinds {
		return op.halt(stopUnwound, nil)
	}
	return nil
}

func (c *Calls) unsettled() (open []*parallelCall) {
	for _, call := range c.calls {
		if call.open {
			open = append(open, call)
		}
	}
	return open
}

// recall loads the record of a call.
func (op *Op) recall(call *parallelCall) {
	w, s := op.work, call.step
	switch {
	case call.verdict.do == unwind:
		return
	case call.verdict.do == replay:
		call.stored, call.err = op.replay(s)
		return
	case w.journal.replays:
		_ = op.obey(call.verdict)
		return
	}
	call.open = true
	call.doubt = s.recorded != nil && s.recorded.Outcome == db.StepBegun && !w.unsent[s.seq]
	switch {
	case s.recorded != nil && s.recorded.Value != nil:
		call.tries = triesOf(s.recorded.Value)
	case w.at.Seq == s.seq, w.at.Seq == 0 && w.at.Step == s.name: // older code has made it alone
		call.tries = w.at.Tries
	}
	if call.isSpent() { // it was parked: Retry begins to count anew, and Cancel allows one attempt more
		call.tries = 0
		if w.journal.canceled {
			call.tries = call.policy.attempts - 1
		}
	}
}

// begin records the calls that are still to be made as begun, before the first of them is made.
func (c *Calls) begin() error {
	op := c.op
	fresh, begun := false, time.Now()
	var first *parallelCall
	for _, call := range c.unsettled() {
		call.elapsed = func() time.Duration { return time.Since(begun) }
		dated := call.doubt && !call.step.recorded.DueAt.IsZero()
		switch {
		case dated:
			call.elapsed = op.work.clock.since(call.step.recorded.DueAt)
		case call.doubt: // older code has made it alone
			call.elapsed = op.work.elapsed
		}
		if first == nil {
			first = call
		}
		if !dated && call.verdict.do != park {
			op.recordBegun(call)
			fresh = true
		}
	}
	if fresh {
		if err := op.commit(commit{at: positionOf(first)}); err != nil {
			return err
		}
	}
	for _, call := range c.unsettled() {
		call.dated = true
	}
	return nil
}

func positionOf(call *parallelCall) db.At {
	return db.At{Kind: call.step.kind, Step: call.step.name, Seq: call.step.seq}
}

// recordBegun records with the next commit that a call is begun, since when, and how often it was
// tried. A row keeps its time: otherwise each process that resumes the operation would extend the
// window of the call.
func (op *Op) recordBegun(call *parallelCall) {
	r := op.record(call.step, db.StepBegun, triesValue(call.tries))
	if call.doubt {
		r.Pause, r.Keeps = -call.elapsed(), call.dated
	}
}

// make makes the calls, and returns when all have ended.
func (c *Calls) make() {
	open := c.unsettled()
	c.pauses = newPauses(len(open))
	var ended sync.WaitGroup
	for _, call := range open {
		alone := *c.op.work
		alone.at, alone.outcomes, alone.elapsed = db.At{}, map[int]db.Step{}, call.elapsed
		call.op = &Op{work: &alone, ctx: c.op.ctx, cancel: c.op.cancel, current: call.step.name}
		call.pauseTogether = func(d time.Duration) error { return c.pauses.pause(call.op, d) }
		if call.op.obey(call.verdict) != nil {
			c.pauses.end()
			continue
		}
		ended.Go(func() {
			defer c.pauses.end()
			call.run()
		})
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

// collect records the outcome of a call, if it has one. It reports whether the call has not happened
// and is not made, because the operation unwinds.
func (op *Op) collect(call *parallelCall) (unwinds bool) {
	if s := call.op.stopped; s != nil && s.why == stopUnwound {
		op.record(call.step, db.StepNotSent, nil)
		call.open, call.verdict.do = false, unwind
		return true
	}
	if s, ok := call.op.work.outcomes[call.step.seq]; ok {
		call.open = false
		op.work.outcomes[s.Seq] = s
		op.record(call.step, s.Outcome, s.Value)
	}
	return false
}

// stop returns why calls have no outcome, or nil if all have one. The end of the run takes precedence
// over a pause, and a pause over parking.
func (c *Calls) stop() *stop {
	var stops []*stop
	for _, call := range c.unsettled() {
		stops = append(stops, call.op.stopped)
	}
	if len(stops) == 0 {
		return nil
	}
	for _, why := range []why{stopBroken, stopLeft, stopAgain, stopSuspended} {
		if i := slices.IndexFunc(stops, func(s *stop) bool { return s.why == why }); i >= 0 {
			return stops[i]
		}
	}
	all := *stops[0]
	for _, s := range stops[1:] {
		all.text += "; " + s.text
		all.cause = cmp.Or(all.cause, s.cause)
	}
	return &all
}

// suspend stops the run, and records the progress of the calls: their outcomes, which of them were
// never sent, and how often each was tried. If that fails, the calls without a recorded outcome are
// in doubt for the next process.
func (c *Calls) suspend(s *stop) error {
	op, open := c.op, c.unsettled()
	for _, call := range open {
		c.recordUnsettled(call)
	}
	at := positionOf(open[0])
	if s.why == stopSuspended {
		at.Pause = c.pauses.untilNext()
		if op.commit(commit{free: true, at: at, failure: open[0].failure()}) == nil {
			return op.halt(stopSuspended, nil)
		}
		if s = op.stopped; s.why != stopAgain && s.why != stopLeft {
			return s
		}
		at.Pause = 0
	}
	if len(op.pending) > 0 || op.work.at.Seq != at.Seq {
		op.commitStopped(commit{always: true, at: at, failure: open[0].failure()})
	}
	op.stopped = s
	return s
}

// recordUnsettled records, with the next commit, the progress of a call without an outcome.
func (c *Calls) recordUnsettled(call *parallelCall) {
	op := c.op
	row := op.work.journal.steps[call.step.seq]
	switch {
	case !call.doubt && call.op.stopped.why != stopParked:
		op.record(call.step, db.StepNotSent, triesValue(call.tries))
	case triesOf(row.Value) != call.tries:
		call.doubt = true
		op.recordBegun(call)
	}
}

// pauses knows which calls are in a long pause. When all calls have ended or are in one, the pause
// frees the worker or the caller.
type pauses struct {
	mu     sync.Mutex
	active int               // neither in a long pause nor ended
	until  map[*Op]time.Time // by the Op of the call
	free   chan struct{}     // closed when the operation is released
	over   bool
}

func newPauses(active int) *pauses {
	return &pauses{active: active, until: map[*Op]time.Time{}, free: make(chan struct{})}
}

// pause pauses between two attempts of a call.
func (r *pauses) pause(op *Op, d time.Duration) error {
	r.mu.Lock()
	r.until[op] = time.Now().Add(d)
	r.active--
	r.look()
	r.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.free:
	case <-op.ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over && op.ctx.Err() == nil {
		return op.halt(stopSuspended, nil)
	}
	delete(r.until, op)
	r.active++
	if op.ctx.Err() != nil {
		return op.interrupted()
	}
	return nil
}

// end notes that a call has ended.
func (r *pauses) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
	r.look()
}

// look frees the worker or the caller if no call is in progress or will be soon.
func (r *pauses) look() {
	if r.over || r.active > 0 || len(r.until) == 0 {
		return
	}
	for _, until := range r.until {
		if time.Until(until) < longPause-time.Second/10 {
			return
		}
	}
	r.over = true
	close(r.free)
}

// untilNext returns the time until the end of the first pause.
func (r *pauses) untilNext() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := time.Duration(math.MaxInt64)
	for _, until := range r.until {
		first = min(first, time.Until(until))
	}
	return max(0, first)
}
