package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

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
	read.Stream, read.Room, read.Octets = w.share, w.room(), octetsAtATime
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

// room is how many messages are read at a time.
func (w *worker) room() int {
	usual := w.config.BatchSize * w.share.Of
	if w.to.isWide() {
		return max(usual, min(farAhead*usual, inHandAtOnce*w.share.Of))
	}
	return usual
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
