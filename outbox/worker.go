package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// worker relays a stream, for as long as it has the post.
type worker struct {
	share  store.Stream
	bell   bell
	config *RelayConfig
	post   *post
	to     *destinations
	reach  reach
	holds  holds
	later  later

	delayed delayed
	met     int // how many messages were read that are not held back

	topicsSeen time.Time // when the topics of all relays were last seen to be those of the post
	stuck      []*call   // after errHung: what the Publisher has not returned from
}

const (
	readLimit   = 6 * time.Minute // whatever is in the way of the index, and more than the server may work
	settleLimit = 30 * time.Second

	inHandAtOnce = max(10_000, mostAtOnce*shareOfOne) // messages that a process may have in hand, at most

	topicsPause = 250 * time.Millisecond // another relay that is given topics waits for as long
)

// work relays until ctx ends or the post is lost.
func (w *worker) work(ctx context.Context, publisher Publisher) error {
	abort, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	_, divided := publisher.(Divider)
	w.to = newDestinations(publisher, func(name string) *destination {
		c := caller{publisher: publisher, config: w.config, post: w.post, abort: abort, sole: !divided, size: w.config.BatchSize}
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
		err = errors.Join(err, w.settle(ctx, done))
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
		return w.post.signIfDue(context.WithoutCancel(ctx))
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
		if done = (&outcome{behind: b.behind}); len(b.messages) > 0 {
			idle.Current = firstLook
		}
		w.to.take(ctx, b)
		if b.more || len(b.behind) > 0 && w.to.isOpen(time.Now()) {
			continue
		}
		if err := w.wait(ctx, done, &idle); err != nil {
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
	var bell bell
	if now := time.Now(); w.to.isOpen(now) {
		timer := time.NewTimer(w.to.until(now, w.delayed.until(now, w.holds.until(now, idle.Next()))))
		defer timer.Stop()
		look, bell = timer.C, w.bell
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
		err := w.end(ctx, l, done)
		for err == nil && len(w.to.ended) > 0 {
			err = w.end(ctx, <-w.to.ended, done)
		}
		return err
	case <-sign.C:
		return w.post.sign(context.WithoutCancel(ctx))
	case <-bell:
		idle.Current = firstLook
	case <-look:
	case <-ctx.Done():
	}
	return nil
}

// end adds what came of a batch to the outcome of others.
func (w *worker) end(ctx context.Context, l delivery, done *outcome) error {
	o := l.did
	pause := w.to.end(l, w.config)
	for _, key := range o.gone {
		w.holds.goOn(key)
	}
	for i := range o.failed {
		w.fail(&o.failed[i])
	}
	if w.to.of == nil {
		w.later.end(o)
	}
	done.merge(o)
	if o.hung != nil {
		w.stuck = append(w.stuck, o.hung)
	}
	if o.err != nil && o.hung == nil && ctx.Err() == nil {
		w.config.Logger.WarnContext(ctx, "outbox: messages could not be published, and are tried again", "destination", l.to.name, "error", o.err, "pause", pause)
	}
	switch {
	case errors.Is(o.err, errLost):
		return errLost
	case o.hung != nil:
		if err := w.settle(ctx, done); err != nil {
			return err
		}
		return errHung
	}
	return nil
}

// fail notes that a message is held back, or that its destination has been away for so long that it is a dead letter.
func (w *worker) fail(f *failure) {
	limit := w.config.MaxAway
	if was := w.holds.keys[keyOf(&f.message)]; f.count == 0 && f.bury == nil && limit > 0 && was != nil && !was.awaySince.IsZero() &&
		time.Since(f.message.CreatedAt) > limit && time.Since(was.awaySince) >= min(limit, givenUpAfter) {
		f.die(w.config)
	}
	w.holds.fail(f, w.config)
}

// lookUpHeld reads which keys are held back.
func (w *worker) lookUpHeld(ctx context.Context) error {
	held := &store.ListHeld{Stream: w.share}
	began := time.Now()
	if err := w.ask(ctx, readLimit, begin, &store.LimitRelay{}, held, commit); err != nil {
		return err
	}
	now := time.Now()
	w.holds = w.holds.anew(held.Held, now)
	w.holds.lookUp = now.Add(max(wholePause, wholeShare*now.Sub(began)))
	return nil
}

// turn writes down the outcome of the last batches, and reads the next one. It is one round trip.
func (w *worker) turn(ctx context.Context, done *outcome) (*batch, error) {
	if len(w.holds.keys) > 0 && time.Now().After(w.holds.lookUp) { // a person may have helped what is held back
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
	reach, free := w.from(began)
	held := w.holds.due(began, w.to.free)
	list, read := reach.next(began)
	if reach != &w.reach { // what is read again closes no gap
		list = nil
	}
	topics := &store.SeeTopics{}
	read.Stream, read.Room, read.Octets = w.share, w.config.BatchSize*w.share.Of, octetsAtATime
	requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
	asksTopics := began.Sub(w.topicsSeen) >= topicsPause
	if asksTopics {
		requests = append(requests, topics)
	}
	next := w.delayed.asks(began)
	if next != nil {
		requests = append(requests, next)
	}
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
	if asksTopics && topics.Generation != w.post.generation {
		return nil, errTopics
	}
	if asksTopics {
		w.topicsSeen = began
	}
	if next != nil {
		w.delayed.told(next, time.Now())
	}
	reach.note(list, read, time.Since(began), time.Now())
	return w.sortRead(held, read, free), nil
}

// from returns from where to read. What destinations have left that are free is read from its first place on, while the others
// have been read further.
func (w *worker) from(now time.Time) (*reach, []*destination) {
	free, place := w.to.back(now)
	switch {
	case place == 0:
		return &w.reach, nil
	case w.to.of == nil:
		w.reach.back(place)
		return &w.reach, nil
	}
	again := w.reach.fork(now)
	again.back(place)
	return again, free
}

// sortRead makes a batch of what was read. Free are the destinations for which it was read again.
func (w *worker) sortRead(held *store.ReadHeld, read *store.ReadMessages, free []*destination) *batch {
	b := &batch{alone: map[int64]bool{}, again: w.met < inHandAtOnce}
	w.met += len(read.Messages)
	if held != nil {
		w.holds.met(held)
		for i := range held.Messages {
			m := &held.Messages[i]
			if w.to.inHand[m.Seq] {
				continue
			}
			if as := w.holds.keys[keyOf(m)]; as != nil && as.alone {
				b.alone[m.Seq] = true
			}
			b.messages = append(b.messages, *m)
		}
		b.held = len(b.messages)
	}
	for i := range read.Messages {
		m := &read.Messages[i]
		switch {
		case w.to.inHand[m.Seq]:
		case m.Key != "" && w.holds.has(keyOf(m)):
			b.behind = append(b.behind, m.Seq)
		case w.later.has(m):
		default:
			b.messages = append(b.messages, *m)
		}
	}
	b.more = w.isMore(b, read, free)
	return b
}

// isMore reports whether there is more to read at once.
func (w *worker) isMore(b *batch, read *store.ReadMessages, free []*destination) bool {
	n := len(read.Seqs)
	full := n > 0 && n >= read.Room
	if w.to.again = nil; full {
		w.to.again, w.to.next = free, read.Seqs[n-1]+1
	}
	if len(free) > 0 && len(b.messages) > 0 {
		w.to.backDue = time.Now().Add(readAgain)
	}
	if place := w.later.over(b, full); place > 0 {
		w.reach.back(place)
		return len(b.messages) == 0
	}
	return full && (w.to.of != nil || len(b.messages) == 0)
}

// move inserts in idem.outbox what is due.
func (w *worker) move(ctx context.Context) error {
	move := w.delayed.moves(time.Now(), w.config.BatchSize)
	if move == nil {
		return nil
	}
	if err := w.ask(context.WithoutCancel(ctx), readLimit, begin, &store.LimitRelay{}, move, commit); err != nil {
		return err
	}
	w.delayed.moved(move, time.Now())
	return nil
}

// settle writes down the outcome of a batch, whether or not ctx has ended.
func (w *worker) settle(ctx context.Context, o *outcome) error {
	written := w.written(o)
	if len(written) > 0 {
		requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
		if err := w.ask(context.WithoutCancel(ctx), settleLimit, append(requests, commit)...); err != nil {
			return err
		}
	}
	w.tell(o)
	*o = outcome{}
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
			guard.Do(w.config.Logger, "outbox: OnDead", func() { w.config.OnDead(o.failed[i].letter()) })
		}
	}
}

func (w *worker) ask(ctx context.Context, limit time.Duration, requests ...txn.Request) error {
	if err := w.post.signIfDue(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	err := w.post.db.Query(bounded, requests...)
	if err == nil && w.post.session != nil {
		w.post.seen.Store(time.Now().UnixNano())
	}
	return err
}
