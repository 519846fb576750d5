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
// Each call is a step with a key, a policy, undos and an outcome of its own. The calls take their
// positions in the order of Go. One commit before them records all of them as begun, and the next
// commit records what they have returned: together they cost the commits of one Call. If one call
// fails or has to wait for a person, the others still come to their outcomes before the function
// continues, or the operation parks. A process that resumes the operation after a crash settles
// each call as its policy says.
//
// Between the first Go and Wait no other step is taken. A call whose backoff is 5 seconds or more
// is tried again only when no other of the calls is in progress: the backoff frees the caller or
// the worker. A panic in the function of a call is raised by Wait.
type Calls struct {
	op     *Op
	calls  []*parallelCall
	busy   sync.Mutex // held by a Go or the Wait
	opened bool       // Go was called: op.taking is locked until Wait
	waited bool       // Wait was called
	ended  bool       // Wait has returned
}

// Value is the result of one call of Calls, after Wait.
type Value[T any] struct {
	calls *Calls
	call  *parallelCall // nil if Go was refused
}

// parallelCall is one of the calls. While it is made, it has an Op of its own, so that it can stop
// without stopping the others.
type parallelCall struct {
	*outsideCall
	planUndos func() // keeps the undos of the call
	op        *Op
	open      bool // the call has no outcome yet
	renewed   bool // Retry has given the call new attempts, which its row does not show yet
	stored    []byte
	err       error
	begunAt   time.Time  // by the clock of this process
	panicked  *callPanic // of its function
}

// Parallel returns Calls of this run. They cannot be used after the function has returned.
func Parallel(op *Op) *Calls { return &Calls{op: op} }

// Go adds a call, which Wait makes. Its arguments are those of Call.
func Go[T any](calls *Calls, name string, policy Policy, do func(ctx context.Context, key string) (T, error), undo ...Undo[T]) *Value[T] {
	v := &Value[T]{calls: calls}
	if !calls.busy.TryLock() {
		calls.op.misuse("Go %q while another Go, or Wait, of the same Calls is in progress", name)
		return v
	}
	defer calls.busy.Unlock()
	s := calls.add(callRequest(name, &policy, undo))
	if s == nil {
		return v
	}
	op, call := calls.op, &parallelCall{}
	call.outsideCall = newOutsideCall(op, s, policy, do)
	call.parallel = true
	call.planUndos = func() {
		planUndos(op, s, undo, func() (T, error) { return decode[T](op.work.definition.codec, call.stored) })
	}
	v.call = call
	calls.calls = append(calls.calls, call)
	return v
}

// add takes the position of a call. It returns nil if the run takes no further step. A call that is
// to park or to unwind is added all the same, because the others come to their outcomes first. Only
// a call that the code has changed parks at once.
func (c *Calls) add(r request) *step {
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
	op.callsOpen = true
	s, err := op.ask(r)
	if err == nil && s.do == park && s.stop.reason == ReasonCodeChanged {
		err = op.follow(s.decision)
	}
	if err != nil {
		return nil
	}
	return s
}

// Wait makes the calls, all at the same time, and returns when each of them has an outcome. The
// error joins those of the calls, in the order of Go, and is nil if all have returned a value.
// Call Wait once.
func (c *Calls) Wait() error {
	op := c.op
	if !c.busy.TryLock() {
		return op.misuse("Wait while a Go or another Wait of the same Calls is in progress")
	}
	defer c.busy.Unlock()
	if c.waited {
		return op.misuse("Wait of the same Calls twice")
	}
	c.waited = true
	defer func() { c.ended = true }()
	if !c.opened {
		return op.stopError()
	}
	defer op.taking.Unlock()
	op.callsOpen = false
	if err := op.stopError(); err != nil {
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

// Value returns what the call has returned: the same in the first run and in every later one. Call
// it after Wait.
func (v *Value[T]) Value() (T, error) {
	var none T
	op := v.calls.op
	switch {
	case !v.calls.ended:
		return none, op.misuse("Value before the end of Wait")
	case op.stopError() != nil:
		return none, op.stopped
	case v.call == nil:
		return none, op.misuse("Value of a call that Go has refused")
	}
	return haltOnPanic(op, v.call.step.name, func() (T, error) { return result[T](op, v.call.step, v.call.stored, v.call.err) })
}

// settle brings every call to an outcome, or stops the run: load the records, commit that the calls
// are begun, make the calls, collect their outcomes. If a call has no outcome, the progress of all
// calls is committed before the run stops.
func (c *Calls) settle() error {
	op := c.op
	for _, call := range c.calls {
		if op.loadCall(call); op.stopped != nil {
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
	unwinds := false // a call was never sent, and is not made
	for _, call := range c.calls {
		call.panicked.rethrow(op, call.step.name)
		switch {
		case call.step.do == unwind || call.err == errNotMade:
			unwinds, call.err = true, errNotMade
		case !call.open && call.err == nil:
			call.planUndos()
		}
	}
	if s := c.stop(); s != nil {
		return c.suspend(s)
	}
	op.stepEnded()
	if unwinds && op.work.journal.recordedAfter(op.seq) == nil {
		return op.halt(stopUnwound, nil)
	}
	return nil
}

func (c *Calls) unsettled() []*parallelCall {
	return slices.DeleteFunc(slices.Clone(c.calls), func(call *parallelCall) bool { return !call.open })
}

// loadCall loads the record of a call. The call is then open, unless it has an outcome or the
// operation unwinds. A call that older code made alone has its number of attempts in the row of the
// operation. A call that has used up its attempts was parked: Retry begins to count anew, and
// Cancel allows one more attempt.
func (op *Op) loadCall(call *parallelCall) {
	w, s := op.work, call.step
	switch {
	case s.do == unwind:
		return
	case s.do == replay:
		call.stored, call.err = op.replay(s)
		return
	case w.journal.replays:
		_ = op.follow(s.decision)
		return
	}
	call.open = true
	call.doubt = s.recorded != nil && s.recorded.Outcome == db.StepBegun && !w.unsent[s.seq]
	switch {
	case s.recorded != nil && s.recorded.Value != nil:
		call.tries = triesOf(s.recorded.Value)
	case w.rowless == s.seq, w.at.Seq == 0 && w.at.Step == s.name: // older code has made it alone
		call.tries = w.at.Tries
	}
	switch {
	case !call.isSpent():
	case w.journal.canceled:
		call.tries = call.policy.attempts - 1
	case w.at.Tries == 0: // Retry has set it to 0
		call.tries, call.renewed = 0, true
	}
}

// begin commits that the open calls are begun, before the first of them is made. If all of them are
// recorded as begun, there is nothing to commit.
func (c *Calls) begin() error {
	op, open := c.op, c.unsettled()
	fresh, now, tries := false, time.Now(), 0
	for _, call := range open {
		tries = max(tries, call.tries)
		call.begunAt = now
		dated := call.doubt && !call.step.recorded.DueAt.IsZero()
		switch {
		case dated:
			call.begunAt = op.work.clock.local(call.step.recorded.DueAt)
		case call.doubt: // older code has made it alone
			call.begunAt = op.work.begunAt
		}
		if (!dated || call.renewed) && call.step.do != park {
			op.recordBegun(call, dated)
			fresh = true
		}
	}
	if fresh {
		at := open[0].step.position(0)
		at.Tries = tries
		return op.commit(commit{at: at})
	}
	return nil
}

// recordBegun adds to the next commit that a call is begun, since when, and how often it was tried.
// If dated, the row has the time when the call was begun, and keeps it. Otherwise each process that
// resumes the operation would extend the window of the call.
func (op *Op) recordBegun(call *parallelCall, dated bool) {
	r := op.record(call.step, db.StepBegun, triesValue(call.tries))
	if call.doubt {
		r.Pause, r.Keeps = -time.Since(call.begunAt), dated
	}
}

// make makes the open calls, and returns when all have ended. Each call has an Op and a work of its
// own, with copies of the fields that an attempt changes.
func (c *Calls) make() {
	var ended sync.WaitGroup
	for _, call := range c.unsettled() {
		alone := *c.op.work
		alone.at, alone.unrecorded, alone.begunAt = db.At{}, map[int]db.Step{}, call.begunAt
		call.op = &Op{work: &alone, ctx: c.op.ctx, cancel: c.op.cancel, current: call.step.name}
		if call.op.follow(call.step.decision) == nil {
			delete(c.op.work.unsent, call.step.seq)
			ended.Go(call.run)
		}
	}
	ended.Wait()
}

// run makes one call, and keeps a panic of its function for Wait.
func (p *parallelCall) run() {
	returned := false
	defer func() {
		if !returned {
			p.panicked = &callPanic{value: recover(), stack: debug.Stack()}
		}
	}()
	p.stored, p.err = p.op.tryUntilSettled(p.outsideCall)
	returned = true
}

// collect adds the outcome of a call to the next commit, if it has one. A call that has not happened
// is not made if the operation unwinds.
func (op *Op) collect(call *parallelCall) {
	if s := call.op.stopped; s != nil && s.kind == stopUnwound {
		op.record(call.step, db.StepNotSent, nil)
		call.open, call.step.do = false, unwind
		return
	}
	if s, ok := call.op.work.unrecorded[call.step.seq]; ok {
		call.open = false
		op.work.unrecorded[s.Seq] = s
		op.record(call.step, s.Outcome, s.Value)
	}
}

// stop returns why calls have no outcome, or nil if all have one. The end of the run takes
// precedence over a pause, and a pause over parking. If several calls park, their texts are joined.
func (c *Calls) stop() *stop {
	var stops []*stop
	for _, call := range c.unsettled() {
		stops = append(stops, call.op.stopped)
	}
	if len(stops) == 0 {
		return nil
	}
	for _, kind := range []stopKind{stopFailed, stopCallerLeft, stopRerun, stopSuspended} {
		if i := slices.IndexFunc(stops, func(s *stop) bool { return s.kind == kind }); i >= 0 {
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

// suspend stops the run, and commits the progress of the calls: their outcomes, which of them were
// never sent, and how often each was tried. If the commit fails, the calls without a recorded
// outcome are in doubt for the next process.
func (c *Calls) suspend(s *stop) error {
	op, open := c.op, c.unsettled()
	next, tries := time.Duration(math.MaxInt64), 0
	for _, call := range open {
		c.recordUnsettled(call)
		tries = max(tries, call.tries)
		if call.op.stopped.kind == stopSuspended {
			next = min(next, time.Until(call.dueAt))
		}
	}
	at, failure := open[0].step.position(0), op.failureOf(open[0].outsideCall)
	at.Tries = tries
	if s.kind == stopSuspended {
		at.Pause = max(0, next)
		_ = op.suspend(commit{at: at, failure: failure})
		if s = op.stopped; s.kind != stopRerun && s.kind != stopCallerLeft {
			return s
		}
	}
	if len(op.pending) > 0 || op.work.at.Seq != at.Seq {
		op.commitStopped(commit{always: true, at: at, failure: failure})
	}
	op.stopped = s
	return s
}

// recordUnsettled adds the progress of a call without an outcome to the next commit.
func (c *Calls) recordUnsettled(call *parallelCall) {
	op := c.op
	row := op.work.journal.rows[call.step.seq]
	switch {
	case !call.doubt && call.op.stopped.kind != stopParked:
		op.record(call.step, db.StepNotSent, triesValue(call.tries))
	case triesOf(row.Value) != call.tries:
		call.doubt = true
		op.recordBegun(call, !row.DueAt.IsZero())
	}
}
