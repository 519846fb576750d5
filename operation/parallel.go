package operation

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/internal/store"
)

// Calls are several Calls that are made at the same time. Go adds one, and Wait makes them all:
//
//	calls := operation.Parallel(op)
//	air := operation.Go(calls, "air", operation.Keyed(23*time.Hour), bookAir)
//	room := operation.Go(calls, "room", operation.Keyed(23*time.Hour), bookRoom)
//	failed := calls.Wait()
//	ticket, err := air.Value()
//
// Each of them is a step with a key, a safety and an outcome of its own, and what is said of Call is true of it. They take their places
// in the order of Go. One commit before them puts all of them on record as begun, and the next commit records what they have returned:
// together they cost the commits of one Call. If one fails, or has to wait for a person, the others still come to their end and are
// recorded before the function goes on, or the operation is parked. A process that takes the operation up after a crash settles each
// call as its safety says.
//
// Between the first Go and Wait no other step is taken, and no undo registered. What has happened is undone only if an undo was registered
// for it: register an Undo for each call that has a value before the error of another one is returned, or one for all of them ahead of
// Parallel. An Undo behind Wait covers all of them, as one behind several Calls does.
//
// A pause of 5 seconds or more frees the caller, or the worker, only when no other of the calls is under way. If the operation is
// cancelled, a call that is not made any more has the error ErrCancelled. A panic in the function of a call is raised by Wait.
type Calls struct {
	together
	busy   sync.Mutex // a Go or the Wait is under way
	opened bool       // by the first Go: no other step is taken
	waited bool
}

// Future is what a call of Calls will have returned when Wait is over.
type Future[T any] struct {
	calls *Calls
	call  *parallelCall // nil if it is not one of them
}

// Parallel returns Calls of this run. It is of no use once the function has returned.
func Parallel(op *Op) *Calls { return &Calls{together: together{op: op}} }

// Go adds a call, which Wait makes. Its arguments are those of Call.
func Go[T any](calls *Calls, name string, safety Safety, fn func(ctx context.Context, key string) (T, error), opts ...CallOption) *Future[T] {
	f := &Future[T]{calls: calls}
	if !calls.busy.TryLock() {
		calls.op.misuse("Go %q while another Go, or Wait, of the same Calls is under way", name)
		return f
	}
	defer calls.busy.Unlock()
	if s := calls.add(name); s != nil {
		f.call = &parallelCall{outside: outsideOf(calls.op, s, safety, fn, opts)}
		calls.calls = append(calls.calls, f.call)
	}
	return f
}

// add takes the place of a call. It returns nil if no step is taken any more.
func (c *Calls) add(name string) *step {
	op := c.op
	switch {
	case c.waited:
		op.misuse("Go %q behind Wait", name)
		return nil
	case !c.opened && !op.taking.TryLock():
		op.misuse("Go %q while another step is taken", name)
		return nil
	}
	c.opened = true
	op.grouped = true
	s, err := op.find(store.CallStep, name)
	if err != nil {
		return nil
	}
	if n := len(c.calls); n > 0 {
		op.paired(c.calls[n-1].step.seq)
	}
	return s
}

// Wait makes the calls, all at the same time, and returns when each of them has come to its end. The error joins those of the calls, in
// the order of Go, and is nil if all have returned a value. Calls are waited for once.
func (c *Calls) Wait() error {
	op := c.op
	switch {
	case !c.busy.TryLock():
		return op.misuse("Wait while a Go or another Wait of the same Calls is under way")
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

// Value returns what the call has returned: the same in the first run and in every later one. It is asked behind Wait.
func (f *Future[T]) Value() (T, error) {
	var none T
	op := f.calls.op
	if !f.calls.busy.TryLock() {
		return none, op.misuse("Value while Wait is under way")
	}
	defer f.calls.busy.Unlock()
	switch {
	case op.halted() != nil:
		return none, op.stopped
	case f.call == nil || !f.calls.waited:
		return none, op.misuse("Value before Wait")
	}
	return whole(op, f.call.step.name, func() (T, error) { return result[T](op, f.call.step, f.call.stored, f.call.err) })
}
