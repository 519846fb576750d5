package inbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Buffered is a message that a consumer has. D is what the adapter settles it with.
type Buffered[D any] struct {
	Part     string // what Seq counts in, a partition for example
	Seq      uint64
	Message  Message
	Delivery D

	until  time.Time // not to be tried before
	failed bool      // and not only behind another one
}

// Buffer has the messages that a broker has given to a consumer and that are not settled yet: handled, or a dead letter. It is what an
// adapter is made of: Put what the broker delivers, hand Round what is Ready, and acknowledge what it settles. They are handled in the
// order of their source. In order of key, a message waits behind those of its key that have to be tried again, in this process, where no
// broker can let it overtake them. The zero value is empty and has no order. All methods may be called at the same time.
type Buffer[D any] struct {
	Ordered bool // by key

	mu   sync.Mutex
	held []*Buffered[D] // by Part and Seq
}

// Put takes a message in. One that is there already keeps its pause, and is settled by its latest delivery.
func (b *Buffer[D]) Put(held *Buffered[D]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, found := b.find(held.place())
	if found {
		held.until, held.failed = b.held[i].until, b.held[i].failed
		b.held[i] = held
		return
	}
	b.held = slices.Insert(b.held, i, held)
}

// All returns what is in the buffer.
func (b *Buffer[D]) All() []*Buffered[D] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.held)
}

// Drop lets go of messages.
func (b *Buffer[D]) Drop(which func(*Buffered[D]) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(b.held, which)
}

// Ready returns at most limit messages of among that may be handled at that time, and when the next one may be, the zero
// time if none has a pause. In order, one that has failed is there without those behind it: it may well fail again, and they
// would take the places of others. Only if one of them has failed as well are they there up to that: the inbox lets the first of
// several that have failed pass if it sees that it is the first.
func (b *Buffer[D]) Ready(among []*Buffered[D], now time.Time, limit int) (ready []*Buffered[D], next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type name struct{ source, key string }
	waiting, failed, lastFailed := map[name]bool{}, map[name]bool{}, map[name]int{}
	for i, held := range among {
		if held.failed {
			lastFailed[name{held.Message.Source, held.Message.Key}] = i
		}
	}
	for i, held := range among {
		key := name{held.Message.Source, held.Message.Key}
		inOrder := b.Ordered && held.Message.Key != ""
		switch {
		case failed[key]:
			if i <= lastFailed[key] && len(ready) < limit {
				ready = append(ready, held)
			}
		case held.until.After(now):
			waiting[key] = inOrder
			if next.IsZero() || held.until.Before(next) {
				next = held.until
			}
		case !waiting[key] && len(ready) < limit:
			ready = append(ready, held)
			failed[key] = inOrder && held.failed
		}
	}
	return ready, next
}

// Round handles messages by handle, which is [Batch] for one consumer, that are ready, and tells settle the outcome of each. It lets go of those that are settled, and
// of those that are to be tried again, unless the buffer has an order, the consumer pauses, or handle returns an error: then they stay.
func (b *Buffer[D]) Round(ctx context.Context, ready []*Buffered[D], handle func(context.Context, []Message) ([]Outcome, error), settle func(*Buffered[D], Outcome)) error {
	messages := make([]Message, len(ready))
	for i, held := range ready {
		messages[i] = held.Message
	}
	outcomes, err := handle(ctx, messages)
	gone := map[buffered]bool{}
	for i, outcome := range outcomes {
		if outcome.State == Retry && (b.Ordered || err != nil || errors.Is(outcome.Err, ErrPaused)) {
			b.wait(ready[i].place(), outcome)
			continue
		}
		settle(ready[i], outcome)
		gone[ready[i].place()] = true
	}
	b.Drop(func(held *Buffered[D]) bool { return gone[held.place()] })
	return err
}

func (b *Buffer[D]) wait(p buffered, outcome Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, found := b.find(p); found {
		b.held[i].until = outcome.RetryAt
		if !errors.Is(outcome.Err, ErrPaused) { // nothing was found out about it
			b.held[i].failed = !errors.Is(outcome.Err, ErrBehind)
		}
	}
}

type buffered struct {
	part string
	seq  uint64
}

func (h *Buffered[D]) place() buffered { return buffered{h.Part, h.Seq} }

func (b *Buffer[D]) find(p buffered) (int, bool) {
	return slices.BinarySearchFunc(b.held, p, func(held *Buffered[D], p buffered) int {
		return cmp.Or(cmp.Compare(held.Part, p.part), cmp.Compare(held.Seq, p.seq))
	})
}
