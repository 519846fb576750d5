package outbox

import (
	"container/heap"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// heldKeys are the keys of a stream that are held back, by the time at which they are due. The table has them as well; only the
// relay changes them.
type heldKeys struct {
	keys  map[store.HeldKey]*heldKey
	queue queue

	lookUp time.Time // when the table is to be asked again
}

// heldKey is how a key is held back.
type heldKey struct {
	key    store.HeldKey
	due    time.Time
	failed bool  // its first message has failed; otherwise that is only behind one that is gone
	alone  *lone // it has failed without being named

	awaySince time.Time // since when its destination is away
	pause     time.Duration

	unwritten int // how much of it the table does not have: until then it is not due
	index     int // in the queue, if nothing is unwritten
}

// How many messages of how many keys are read at a time.
const (
	heldAtATime = 1024
	runOfAKey   = 16

	lonesAtATime = 64 // of those that have failed without being named, and are tried one by one
)

func newHeldKeys(held []store.HeldBack, now time.Time) heldKeys {
	h := heldKeys{keys: make(map[store.HeldKey]*heldKey, len(held))}
	for _, key := range held {
		h.put(heldKey{key: key.HeldKey, due: now.Add(key.Due), failed: key.Attempts > 0 || key.Due > 0})
	}
	return h
}

// anew returns what the table holds back, and what is to be written there. Since when a destination is away is in no table.
func (h *heldKeys) anew(held []store.HeldBack, now time.Time) heldKeys {
	next := newHeldKeys(held, now)
	for key, as := range next.keys {
		if was := h.keys[key]; was != nil {
			as.failed, as.alone, as.awaySince, as.pause = as.failed || was.failed, was.alone, was.awaySince, was.pause
		}
	}
	for key, was := range h.keys {
		if was.unwritten > 0 { // the table does not know
			next.remove(key)
			next.keys[key] = was
		}
	}
	return next
}

// keyOf names what a message is held back with.
func keyOf(m *store.Queued) store.HeldKey {
	if m.Key == "" {
		return store.HeldKey{Topic: m.Topic, Seq: m.Seq}
	}
	return store.HeldKey{Topic: m.Topic, Key: m.Key}
}

func (h *heldKeys) put(as heldKey) {
	if was := h.keys[as.key]; was != nil {
		as.index, as.unwritten = was.index, was.unwritten
		if *was = as; as.unwritten == 0 {
			heap.Fix(&h.queue, was.index)
		}
		return
	}
	heap.Push(&h.queue, &as)
	h.keys[as.key] = &as
}

func (h *heldKeys) remove(key store.HeldKey) {
	if was := h.keys[key]; was != nil {
		if was.unwritten == 0 {
			heap.Remove(&h.queue, was.index)
		}
		delete(h.keys, key)
	}
}

// waits says that something of a key, which is held back, is to be written down.
func (h *heldKeys) waits(key store.HeldKey) {
	if !h.has(key) {
		h.put(heldKey{key: key, due: time.Now()})
	}
	as := h.keys[key]
	if as.unwritten++; as.unwritten == 1 {
		heap.Remove(&h.queue, as.index)
	}
}

// written says that something of a key is written down.
func (h *heldKeys) written(key store.HeldKey) {
	if as := h.keys[key]; as != nil {
		if as.unwritten--; as.unwritten == 0 {
			heap.Push(&h.queue, as)
		}
	}
}

// goOn says that the first message of a key is gone: the next of the key are due.
func (h *heldKeys) goOn(key store.HeldKey) {
	if key.Key == "" {
		h.remove(key)
		return
	}
	h.put(heldKey{key: key, due: time.Now()})
}

// fail says that the first message of a key has failed, and returns when it is due. While its destination is away, it says for how long that pauses.
func (h *heldKeys) fail(f *failure, c *RelayConfig) (due time.Time) {
	key := keyOf(&f.message)
	if f.bury != nil {
		h.goOn(key)
		return due
	}
	now := time.Now()
	as := heldKey{key: key, failed: true, alone: f.alone}
	if was := h.keys[key]; f.count == 0 && !f.later {
		as.awaySince, as.pause = now, c.MinPause
		if was != nil && !was.awaySince.IsZero() {
			as.awaySince, as.pause = was.awaySince, min(2*was.pause, max(c.MinPause, min(c.MaxPause, longestRest)))
		}
		f.pause = max(f.pause, as.pause)
	}
	as.due = now.Add(f.pause)
	h.put(as)
	return as.due
}

func (h *heldKeys) has(key store.HeldKey) bool {
	_, ok := h.keys[key]
	return ok
}

// due returns what to read of the keys that are due. Those that are not free are looked at again a little later.
func (h *heldKeys) due(now time.Time, free func(topic string) bool, room int, octets int64) *store.ReadHeld {
	read := &store.ReadHeld{Octets: octets}
	var met []*heldKey
	lones := 0
	for looks := 0; room > 0 && looks < heldAtATime && len(h.queue) > 0 && !h.queue[0].due.After(now); looks++ {
		as := heap.Pop(&h.queue).(*heldKey)
		met = append(met, as)
		if !free(as.key.Topic) || as.alone != nil && lones == lonesAtATime {
			as.due = now.Add(notFree)
			continue
		}
		if as.alone != nil {
			lones++
		}
		run := 1
		if !as.failed && as.key.Key != "" {
			run = min(runOfAKey, room)
		}
		read.Keys, read.Runs, room = append(read.Keys, as.key), append(read.Runs, run), room-run
	}
	for _, as := range met {
		heap.Push(&h.queue, as)
	}
	if len(read.Keys) == 0 {
		return nil
	}
	return read
}

// notFree is after which time a key that is due is looked at again if its destination is slow or away.
const notFree = 100 * time.Millisecond

// until returns how long it is until one is due, at most limit.
func (h *heldKeys) until(now time.Time, limit time.Duration) time.Duration {
	if len(h.queue) == 0 {
		return limit
	}
	return min(max(h.queue[0].due.Sub(now), 0), limit)
}

// met forgets the keys of which nothing was read although it was asked for: nothing of them is held back any more.
func (h *heldKeys) met(read *store.ReadHeld) {
	met, octets := map[store.HeldKey]bool{}, int64(0)
	for i := range read.Messages {
		met[keyOf(&read.Messages[i])] = true
		octets += int64(read.Messages[i].Octets)
	}
	for _, key := range read.Keys {
		if !met[key] && octets < read.Octets {
			h.remove(key)
		}
	}
}

// queue is a heap of holds: the first is due first.
type queue []*heldKey

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].index, q[j].index = i, j }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	as := x.(*heldKey)
	as.index = len(*q)
	*q = append(*q, as)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	as := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return as
}
