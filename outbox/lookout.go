package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// lookout is what a worker knows of a stream, and by which it reads what is to be published next.
type lookout struct {
	clerk
	share    store.Stream
	to       *destinations
	progress progress
	later    later
	delayed  delayed

	met        int       // how many messages were read that are not held back
	topicsSeen time.Time // when the topics of all relays were last seen to be those of the ownership
}

// topicsPause is for how long another relay that is given topics waits.
const topicsPause = 250 * time.Millisecond

// lookUpHeld reads which keys are held back.
func (l *lookout) lookUpHeld(ctx context.Context) error {
	held := &store.ListHeld{Stream: l.share}
	began := time.Now()
	if err := l.ask(ctx, readLimit, begin, &store.LimitRelay{}, held, commit); err != nil {
		return err
	}
	now := time.Now()
	l.heldKeys = l.heldKeys.anew(held.Held, now)
	l.heldKeys.lookUp = now.Add(max(wholePause, wholeShare*now.Sub(began)))
	return nil
}

// turn writes down the outcome of the last batches, and reads the next one. It is one round trip.
func (l *lookout) turn(ctx context.Context, done *outcome) (*batch, error) {
	if len(l.heldKeys.keys) > 0 && time.Now().After(l.heldKeys.lookUp) { // a person may have helped what is held back
		if err := l.settle(ctx, done); err != nil {
			return nil, err
		}
		if err := l.lookUpHeld(ctx); err != nil {
			return nil, err
		}
		done = &outcome{}
	}
	written, n := l.written(done)
	began := time.Now()
	progress, free := l.from(began)
	held := l.heldKeys.due(began, l.to.free, l.heldRoom(), l.config.octetsAtATime())
	list, read := progress.next(began)
	again := progress != &l.progress
	if again { // what is read again closes no gap
		list = nil
	}
	topics := &store.SeeTopics{}
	read.Stream, read.Room, read.Octets, read.Busy = l.share, l.room(again), l.config.octetsAtATime(), l.to.busyTopics(began)
	requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
	asksTopics := began.Sub(l.topicsSeen) >= topicsPause
	if asksTopics {
		requests = append(requests, topics)
	}
	next := l.delayed.asks(began)
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
	if err := l.ask(asking, readLimit, append(requests, read, commit)...); err != nil {
		return nil, err
	}
	l.wrote(done, n)
	if asksTopics && topics.Generation != l.ownership.generation {
		return nil, errTopics
	}
	if asksTopics {
		l.topicsSeen = began
	}
	if next != nil {
		l.delayed.told(next, time.Now())
	}
	progress.note(list, read, time.Since(began), time.Now())
	return l.sortRead(held, read, free), nil
}

// heldRoom is how many messages are read that are held back. They leave room for what is new.
func (l *lookout) heldRoom() int {
	if l.full {
		return heldAtATime / 4
	}
	return heldAtATime
}

// room is how many messages are read at a time.
func (l *lookout) room(again bool) int {
	usual, times := l.config.BatchSize*l.share.Of, 1
	if again || l.to.of == nil {
		times = l.to.wide
	}
	if l.to.isWide() {
		times = farAhead
	}
	return max(usual, min(times*usual, inHandAtOnce*l.share.Of))
}

// from returns from where to read. What destinations have left that are free is read from its first place on, while the others
// have been read further.
func (l *lookout) from(now time.Time) (*progress, []*destination) {
	free, place := l.to.back(now)
	switch {
	case place == 0:
		return &l.progress, nil
	case l.to.of == nil:
		l.progress.back(place)
		return &l.progress, nil
	}
	again := l.progress.fork(now)
	again.back(place)
	return again, free
}

// sortRead makes a batch of what was read. Free are the destinations for which it was read again.
func (l *lookout) sortRead(held *store.ReadHeld, read *store.ReadMessages, free []*destination) *batch {
	b := &batch{alone: map[int64]*lone{}, again: l.met < inHandAtOnce}
	if len(free) > 0 {
		b.readAgain = len(read.Seqs)
	}
	l.met += len(read.Messages)
	if held != nil {
		l.heldKeys.met(held)
		for i := range held.Messages {
			m := &held.Messages[i]
			if l.to.inHand[m.Seq] {
				continue
			}
			if as := l.heldKeys.keys[keyOf(m)]; as != nil && as.alone != nil {
				b.alone[m.Seq] = as.alone
			}
			b.messages = append(b.messages, *m)
		}
		b.held = len(b.messages)
	}
	for i := range read.Messages {
		m := &read.Messages[i]
		switch {
		case l.to.inHand[m.Seq], l.unwritten.places[m.Seq]:
		case m.Key != "" && l.heldKeys.has(keyOf(m)):
			l.hold(behind{m.Seq, keyOf(m)})
		case l.later.has(m):
		default:
			b.messages = append(b.messages, *m)
		}
	}
	b.more = l.isMore(b, read, free)
	return b
}

// isMore reports whether there is more to read at once.
func (l *lookout) isMore(b *batch, read *store.ReadMessages, free []*destination) bool {
	full := read.IsFull()
	l.full = full
	if l.to.again = nil; full {
		l.to.again, l.to.next = free, read.Seqs[len(read.Seqs)-1]+1
	}
	if place := l.later.over(b, full); place > 0 {
		l.progress.back(place)
		return len(b.messages) == 0
	}
	return full && (l.to.of != nil || len(b.messages) == 0)
}

// move inserts in idem.outbox what is due.
func (l *lookout) move(ctx context.Context) error {
	move := l.delayed.moves(time.Now(), l.config.BatchSize)
	if move == nil {
		return nil
	}
	if err := l.ask(context.WithoutCancel(ctx), readLimit, begin, &store.LimitRelay{}, move, commit); err != nil {
		return err
	}
	l.delayed.moved(move, time.Now())
	return nil
}
