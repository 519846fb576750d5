// Package hand keeps the messages that a broker has given to a consumer and that are not settled yet: handled, or a dead
// letter. They are handled in the order of their source. In order of key, a message waits behind those of its key that
// have to be tried again, here, where no broker can let it overtake them.
package hand

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/inbox"
)

// Held is a message in the hand. D is what the adapter settles it with.
type Held[D any] struct {
	Part     string // what Seq counts in, a partition for example
	Seq      uint64
	Message  inbox.Message
	Delivery D

	until  time.Time // not to be tried before
	failed bool      // and not only behind another one
}

// Hand is what a consumer has in hand. Its zero value is empty and has no order.
type Hand[D any] struct {
	Ordered bool // by key

	mu   sync.Mutex
	held []*Held[D] // by Part and Seq
}

// Put takes a message in. One that is there already keeps its pause, and is settled by its latest delivery.
func (h *Hand[D]) Put(held *Held[D]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, found := h.find(held.place())
	if found {
		held.until, held.failed = h.held[i].until, h.held[i].failed
		h.held[i] = held
		return
	}
	h.held = slices.Insert(h.held, i, held)
}

// All returns what is in the hand.
func (h *Hand[D]) All() []*Held[D] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.held)
}

// Drop lets go of messages.
func (h *Hand[D]) Drop(which func(*Held[D]) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = slices.DeleteFunc(h.held, which)
}

// Ready returns at most limit messages of among that may be handled at that time, and when the next one may be, the zero
// time if none has a pause. In order, one that has failed is there without those behind it: it may well fail again, and they
// would take the places of others. Only if one of them has failed as well are they there up to that: the inbox lets the first of
// several that have failed pass if it sees that it is the first.
func (h *Hand[D]) Ready(among []*Held[D], now time.Time, limit int) (ready []*Held[D], next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type name struct{ source, key string }
	waiting, failed, lastFailed := map[name]bool{}, map[name]bool{}, map[name]int{}
	for i, held := range among {
		if held.failed {
			lastFailed[name{held.Message.Source, held.Message.Key}] = i
		}
	}
	for i, held := range among {
		key := name{held.Message.Source, held.Message.Key}
		inOrder := h.Ordered && held.Message.Key != ""
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

// Handle is [inbox.Batch] for one consumer.
type Handle func(ctx context.Context, messages []inbox.Message) ([]inbox.Outcome, error)

// Round handles messages that are ready, and tells settle what became of each. It lets go of those that are settled, and
// of those that are to be tried again, unless the hand has an order, the consumer pauses, or handle returns an error: then they stay.
func (h *Hand[D]) Round(ctx context.Context, ready []*Held[D], handle Handle, settle func(*Held[D], inbox.Outcome)) error {
	messages := make([]inbox.Message, len(ready))
	for i, held := range ready {
		messages[i] = held.Message
	}
	outcomes, err := handle(ctx, messages)
	gone := map[place]bool{}
	for i, outcome := range outcomes {
		if outcome.State == inbox.Retry && (h.Ordered || err != nil || errors.Is(outcome.Err, inbox.ErrPaused)) {
			h.wait(ready[i].place(), outcome)
			continue
		}
		settle(ready[i], outcome)
		gone[ready[i].place()] = true
	}
	h.Drop(func(held *Held[D]) bool { return gone[held.place()] })
	return err
}

func (h *Hand[D]) wait(p place, outcome inbox.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i, found := h.find(p); found {
		h.held[i].until = outcome.RetryAt
		if !errors.Is(outcome.Err, inbox.ErrPaused) { // nothing was found out about it
			h.held[i].failed = !errors.Is(outcome.Err, inbox.ErrBehind)
		}
	}
}

type place struct {
	part string
	seq  uint64
}

func (h *Held[D]) place() place { return place{h.Part, h.Seq} }

func (h *Hand[D]) find(p place) (int, bool) {
	return slices.BinarySearchFunc(h.held, p, func(held *Held[D], p place) int {
		return cmp.Or(cmp.Compare(held.Part, p.part), cmp.Compare(held.Seq, p.seq))
	})
}
