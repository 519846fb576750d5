package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// worker relays a stream, for as long as it has the ownership.
type worker struct {
	lookout
	waker waker
	stuck []*call // after errHung: what the Publisher has not returned from
}

// work relays until ctx ends or the ownership is lost.
func (w *worker) work(ctx context.Context, publisher Publisher, memory *memory) error {
	abort, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	_, divided := publisher.(Divider)
	w.to = newDestinations(publisher, memory, func(name string) *destination {
		c := caller{publisher: publisher, config: w.config, ownership: w.ownership, abort: abort, sole: !divided, size: w.config.BatchSize}
		return &destination{name: name, caller: c, pauses: pausesOf(w.config)}
	})
	err := w.relay(ctx)
	if err != nil && !errors.Is(err, errTopics) {
		cancel()
	}
	done := &outcome{}
	for w.to.busy > 0 { // each call returns in a bounded time after the end of its context
		if ended := w.await(ctx, done); ended != nil && err == nil || ended != nil && errors.Is(err, errTopics) {
			err = ended
			cancel()
		}
	}
	if err == nil || errors.Is(err, errTopics) {
		err = errors.Join(err, w.settleAll(ctx, done))
	}
	return err
}

// await waits until a call has ended.
func (w *worker) await(ctx context.Context, done *outcome) error {
	sign := time.NewTimer(signPause)
	defer sign.Stop()
	select {
	case l := <-w.to.ended:
		return w.end(ctx, l, done)
	case <-sign.C:
		return w.ownership.signIfDue(context.WithoutCancel(ctx))
	}
}

func (w *worker) relay(ctx context.Context) error {
	if err := w.lookUpHeld(ctx); err != nil {
		return err
	}
	idle := txn.Pauses{Current: firstLook, Limit: w.config.Poll}
	for done := (&outcome{}); ; {
		if ctx.Err() != nil {
			return w.settle(ctx, done)
		}
		b, err := w.look(ctx, done)
		if err != nil {
			return err
		}
		if done = (&outcome{}); len(b.messages) > 0 {
			idle.Current = firstLook
		}
		w.to.take(ctx, b)
		if b.more {
			err = w.endAll(ctx, done)
		} else {
			err = w.wait(ctx, done, &idle)
		}
		if err != nil {
			return err
		}
	}
}

// look writes down what came of the last batches, and reads the next one if there is room for it.
func (w *worker) look(ctx context.Context, done *outcome) (*batch, error) {
	if !w.to.isOpen(time.Now()) {
		return &batch{}, w.settle(ctx, done)
	}
	if err := w.move(ctx); err != nil {
		return nil, err
	}
	return w.turn(ctx, done)
}

// firstLook is the pause between two looks into an outbox that has just become empty.
const firstLook = 50 * time.Millisecond

// wait waits until a call has ended, or there may be something to do.
func (w *worker) wait(ctx context.Context, done *outcome, idle *txn.Pauses) error {
	var look <-chan time.Time
	var waker waker
	if now := time.Now(); len(w.unwritten.line) > 0 && (w.to.busy == 0 || w.to.isOpen(now)) {
		look = time.After(0)
	} else if w.to.isOpen(now) {
		timer := time.NewTimer(w.to.until(now, w.delayed.until(now, w.heldKeys.until(now, idle.Next()))))
		defer timer.Stop()
		look, waker = timer.C, w.waker
	} else if w.to.busy == 0 {
		timer := time.NewTimer(w.to.until(now, signPause))
		defer timer.Stop()
		look = timer.C
	}
	sign := time.NewTimer(signPause)
	defer sign.Stop()
	select {
	case l := <-w.to.ended:
		idle.Current = firstLook
		if err := w.end(ctx, l, done); err != nil {
			return err
		}
		return w.endAll(ctx, done)
	case <-sign.C:
		return w.ownership.sign(context.WithoutCancel(ctx))
	case <-waker:
		idle.Current = firstLook
	case <-look:
	case <-ctx.Done():
	}
	return nil
}

// endAll adds what came of all batches that have ended.
func (w *worker) endAll(ctx context.Context, done *outcome) (err error) {
	for err == nil && len(w.to.ended) > 0 {
		err = w.end(ctx, <-w.to.ended, done)
	}
	return err
}

// end adds what came of a batch to the outcome of others.
func (w *worker) end(ctx context.Context, l delivery, done *outcome) error {
	o := l.did
	pause := w.to.end(l, w.config)
	for _, key := range o.gone {
		w.heldKeys.goOn(key)
	}
	for i := range o.failed {
		w.fail(&o.failed[i])
	}
	for _, b := range o.behind {
		w.hold(b)
	}
	if w.to.of == nil {
		w.later.end(o)
	}
	done.merge(o)
	if o.hung != nil {
		w.stuck = append(w.stuck, o.hung)
	}
	if o.hung == nil && ctx.Err() == nil && l.to.isNews(o.err) {
		w.config.Logger.WarnContext(ctx, "outbox: messages could not be published, and are tried again", "destination", l.to.name, "error", o.err, "pause", pause)
	}
	switch {
	case errors.Is(o.err, errLost):
		return errLost
	case o.hung != nil:
		if err := w.settleAll(ctx, done); err != nil {
			return err
		}
		return errHung
	}
	return nil
}

// fail notes that a message is held back, or that its destination has been away for so long that it is a dead letter.
func (w *worker) fail(f *failure) {
	limit := w.config.MaxAway
	if was := w.heldKeys.keys[keyOf(&f.message)]; f.count == 0 && f.bury == nil && limit > 0 && was != nil && !was.awaySince.IsZero() &&
		time.Since(f.message.CreatedAt) > limit && time.Since(was.awaySince) >= min(limit, givenUpAfter) {
		f.die(w.config)
	}
	w.clerk.fail(f)
}
