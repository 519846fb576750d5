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

// Calls is a group of calls that are made at the same time. Go adds a call, and Wait makes all of
// them:
//
//	calls := operation.Parallel(op)
//	air := operation.Go(calls, "air", operation.Keyed(23*time.Hour), bookAir, cancelAir)
//	room := operation.Go(calls, "room", operation.Keyed(23*time.Hour), bookRoom, cancelRoom)
//	failed := calls.Wait()
//	ticket, err := air.Value()
//
// Each call is a step with its own key, policy, undos and outcome. The order of Go is the order of
// the steps. One commit before the calls records that all of them have begun, and the next commit
// records their outcomes. Together they need as many commits as one Call. If a call fails or has to
// wait for a person, Wait still brings the other calls to their outcomes first. If the process
// crashes, the process that resumes the operation settles each call as the policy of the call says.
//
// Between the first Go and Wait no other step may be taken. If a call has a backoff of 5 seconds or
// more, the operation is released for that time. The call is therefore tried again only after all
// other calls have ended or need such a backoff, too. If the function of a call panics, Wait
// panics.
type Calls struct {
	op     *Op
	calls  []*parallelCall
	busy   sync.Mutex // locked while Go or Wait runs
	opened bool       // Go was called: op.taking is locked until Wait
	waited bool       // Wait was called
	ended  bool       // Wait has returned
}

// Value gives access to the result of one call of Calls, after Wait.
type Value[T any] struct {
	calls *Calls
	call  *parallelCall // nil if Go was misused, or if the run had stopped
}

// parallelCall is one call of Calls. While the call is made, it has an Op of its own, so that it
// can stop without stopping the other calls.
type parallelCall struct {
	*outsideCall
	planUndos func() // plans the undos of the call, once the call is done
	op        *Op
	open      bool // the call has no outcome yet
	renewed   bool // Retry has reset the number of attempts, but the row of the call has the old number
	stored    []byte
	err       error
	begunAt   time.Time  // when the call was begun, by the clock of this process
	panicked  *callPanic // the panic of the call's function; nil if there was none
}

// Parallel returns an empty group of calls. The group cannot be used after the function of the
// operation has returned.
func Parallel(op *Op) *Calls { return &Calls{op: op} }

// Go adds a call to calls. Wait makes the call. The other arguments are those of Call.
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

// add gives a call its position, and decides what to do about it. It returns nil if the run takes
// no further step. add accepts the call even if the decision is to park, or not to make the call
// because the operation is being undone: the other calls come to their outcomes first. Only a
// recorded step that differs from the code parks the operation at once.
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

// Wait makes the calls, all at the same time, and returns when each call has an outcome. It returns
// the joined errors of the calls, in the order of Go, or nil if all calls have returned a value. If
// the run stops, Wait returns the reason. Call Wait once.
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

// Value returns the outcome of the call, which is the same in every run. Call Value after Wait.
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

// settle brings every call to an outcome, or stops the run. It loads the records of the calls,
// commits that the calls have begun, makes the calls, and collects their outcomes. If a call still
// has no outcome, settle commits the progress of all calls before the run stops.
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
	unwinds := false // a call is not made, because the operation is being undone
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

// loadCall loads the record of a call. It marks the call as open if the call has no outcome and may
// still be made. The number of attempts is in the row of the call. If an older version of the code
// made the call by Call, the number is in the row of the operation. If the call had used up its
// attempts, the operation was parked: Retry then resets the number to 0, and Cancel allows one more
// attempt.
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
	case w.rowless == s.seq, w.at.Seq == 0 && w.at.Step == s.name: // an older version of the code made the call by Call
		call.tries = w.at.Tries
	}
	switch {
	case !call.isSpent():
	case w.journal.canceled:
		call.tries = call.policy.attempts - 1
	case w.at.Tries == 0: // Retry has set Tries to 0
		call.tries, call.renewed = 0, true
	}
}

// begin commits that the open calls have begun, before the first of them is made. If the record
// says so already, begin commits nothing.
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
		case call.doubt: // an older version of the code made the call by Call
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

// recordBegun adds a row to the next commit, which says that a call has begun, when, and how often
// it was tried. If dated is true, the stored row has the time at which the call began, and keeps
// it. A new time would extend the window of a Keyed call each time a process resumes the operation.
func (op *Op) recordBegun(call *parallelCall, dated bool) {
	r := op.record(call.step, db.StepBegun, triesValue(call.tries))
	if call.doubt {
		r.Pause, r.Keeps = -time.Since(call.begunAt), dated
	}
}

// make makes the open calls at the same time, and returns when all have ended. Each call has its
// own Op and its own work, with copies of the fields that an attempt changes.
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

// run makes one call. If the function of the call panics, run keeps the panic for Wait.
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

// collect adds the outcome of a call to the next commit, if the call has an outcome. If the call
// has not happened and the operation is being undone, collect records that the call was not sent.
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

// stop returns why some calls have no outcome, or nil if all calls have one. If the calls have
// different reasons, the end of the run takes precedence over a pause, and a pause over parking. If
// several calls park the operation, their texts are joined.
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

// suspend stops the run because of s, and commits the progress of the calls: their outcomes, which
// calls were never sent, and how often each call was tried. If the commit fails, the calls without
// a recorded outcome are in doubt for the next process.
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
