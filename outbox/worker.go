package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// worker relays a stream, for as long as it has the post.
type worker struct {
	share  store.Stream
	bell   bell
	config *RelayConfig
	post   *post
	caller caller
	reach  reach
	holds  holds
	hung   *call // after errHung: what the Publisher has not returned from
}

const (
	readLimit   = 6 * time.Minute // whatever is in the way of the index, and more than the server may work
	settleLimit = 30 * time.Second
)

// begin and commit are the ends of every transaction. Its level is fixed, because at a stricter one a database would make
// those fail who add messages.
const (
	begin  = command("begin isolation level read committed")
	commit = command("commit")
)

// work relays until ctx ends or the post is lost.
func (w *worker) work(ctx context.Context) error {
	if err := w.lookUpHeld(ctx); err != nil {
		return err
	}
	pauses := w.pauses()
	idle := txn.Pauses{Current: firstLook, Limit: w.config.Poll}
	for done := (&outcome{}); ; {
		b, err := w.turn(ctx, done)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if len(b.messages) == 0 {
			done = &outcome{behind: b.behind}
			if len(b.behind) == 0 && w.rest(ctx, idle.Next()) {
				idle.Current = firstLook
			}
			continue
		}
		idle.Current = firstLook
		done = b.publish(ctx, &w.caller, &w.holds)
		if done.err == nil {
			pauses = w.pauses()
			continue
		}
		if err := w.falter(ctx, done, pauses.Next()); err != nil {
			return err
		}
		done = &outcome{}
	}
}

// firstLook is the pause between two looks into an outbox that has just become empty.
const firstLook = 50 * time.Millisecond

// pauses are those while the broker is away.
func (w *worker) pauses() txn.Pauses {
	c := w.config
	return txn.Pauses{Current: max(2*c.MinPause, 2), Limit: max(min(c.MaxPause, 30*time.Second), 2)}
}

// falter writes down what became of a batch of which some were not dealt with through nobody's fault, and waits.
func (w *worker) falter(ctx context.Context, o *outcome, pause time.Duration) error {
	if err := w.settle(ctx, o); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	w.config.Logger.WarnContext(ctx, "outbox: messages could not be published, and are tried again", "error", o.err, "pause", pause)
	if o.hung != nil {
		w.hung = o.hung
		return errHung
	}
	for end := time.Now().Add(pause); time.Now().Before(end) && ctx.Err() == nil; {
		_ = txn.Sleep(ctx, min(time.Until(end), signPause))
		if err := w.post.signIfDue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest waits until there may be something to do. It reports whether somebody said so.
func (w *worker) rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(w.holds.until(time.Now(), pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-w.bell:
		return true
	case <-ctx.Done():
		return false
	}
}

// lookUpHeld reads which keys are held back.
func (w *worker) lookUpHeld(ctx context.Context) error {
	held := &store.ListHeld{Stream: w.share}
	began := time.Now()
	if err := w.ask(ctx, readLimit, begin, &store.LimitRelay{}, held, commit); err != nil {
		return err
	}
	now := time.Now()
	w.holds = newHolds(held.Held, now)
	w.holds.lookUp = now.Add(max(wholePause, wholeShare*now.Sub(began)))
	return nil
}

// turn writes down what became of the last batch, and reads the next one. It is one round trip. After the end of ctx it only
// writes.
func (w *worker) turn(ctx context.Context, done *outcome) (*batch, error) {
	if ctx.Err() != nil {
		return &batch{}, w.settle(ctx, done)
	}
	if len(w.holds.keys) > 0 && time.Now().After(w.holds.lookUp) { // somebody may have seen to what is held back
		if err := w.settle(ctx, done); err != nil {
			return nil, err
		}
		if err := w.lookUpHeld(ctx); err != nil {
			return nil, err
		}
		done = &outcome{}
	}
	written := w.written(done)
	began := time.Now()
	held := w.holds.due(began)
	list, read := w.reach.next(began)
	read.Stream, read.Room, read.Octets = w.share, w.config.BatchSize*w.share.Of, octetsAtATime
	requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
	if held != nil {
		requests = append(requests, held)
	}
	if list != nil { // before what is read: whatever a writer that is gone has committed is in the snapshot
		requests = append(requests, list)
	}
	asking := ctx
	if len(written) > 0 { // a stop does not undo what is done
		asking = context.WithoutCancel(ctx)
	}
	if err := w.ask(asking, readLimit, append(requests, read, commit)...); err != nil {
		return nil, err
	}
	w.tell(done)
	w.reach.note(list, read, time.Since(began), time.Now())
	return w.sortRead(held, read), nil
}

// sortRead makes a batch of what was read.
func (w *worker) sortRead(held *store.ReadHeld, read *store.ReadMessages) *batch {
	b := &batch{}
	if held != nil {
		w.holds.met(held)
		b.messages, b.held = held.Messages, len(held.Messages)
	}
	for i := range read.Messages {
		m := &read.Messages[i]
		if m.Key != "" && w.holds.has(keyOf(m)) {
			b.behind = append(b.behind, m.Seq)
			continue
		}
		b.messages = append(b.messages, *m)
	}
	return b
}

// settle writes down what became of a batch, whether or not ctx has ended.
func (w *worker) settle(ctx context.Context, o *outcome) error {
	written := w.written(o)
	if len(written) > 0 {
		requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
		if err := w.ask(context.WithoutCancel(ctx), settleLimit, append(requests, commit)...); err != nil {
			return err
		}
	}
	if o.left > 0 {
		w.reach.back(o.left)
	}
	w.tell(o)
	return nil
}

// written returns the requests that write an outcome down, with a fence before them if there are any.
func (w *worker) written(o *outcome) []txn.Request {
	requests := o.requests(w.config)
	if len(requests) == 0 {
		return nil
	}
	return append(w.post.fence(), requests...)
}

// tell tells of dead letters, once they are.
func (w *worker) tell(o *outcome) {
	if w.config.OnDead == nil {
		return
	}
	for i := range o.failed {
		if o.failed[i].bury != nil {
			w.config.OnDead(o.failed[i].letter())
		}
	}
}

var errSlow = errors.New("the server has not answered in time")

func (w *worker) ask(ctx context.Context, limit time.Duration, requests ...txn.Request) error {
	if err := w.post.signIfDue(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	err := w.post.db.Query(bounded, requests...)
	if err == nil && w.post.session != nil {
		w.post.seen = time.Now()
	}
	return err
}
