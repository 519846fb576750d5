package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/store"
)

// holds are the keys of a stream that are held back. The table has them as well; only the relay changes them.
type holds struct {
	keys map[store.HeldKey]hold
	next time.Time // none is due before

	lookUp time.Time // when the table is to be asked again
}

// hold is how a key is held back.
type hold struct {
	due    time.Time
	failed bool // its first message has failed; otherwise that is only behind one that is gone
}

// How many messages of how many keys are read at a time.
const (
	keysAtATime = 64
	runOfAKey   = 16

	octetsAtATime = 16 << 20 // however many messages that is
)

func newHolds(held []store.HeldBack, now time.Time) holds {
	h := holds{keys: make(map[store.HeldKey]hold, len(held))}
	for _, key := range held {
		h.put(key.HeldKey, hold{due: now.Add(key.Due), failed: key.Attempts > 0})
	}
	return h
}

// keyOf names what a message is held back with.
func keyOf(m *store.Queued) store.HeldKey {
	if m.Key == "" {
		return store.HeldKey{Topic: m.Topic, Seq: m.Seq}
	}
	return store.HeldKey{Topic: m.Topic, Key: m.Key}
}

func (h *holds) put(key store.HeldKey, as hold) {
	h.keys[key] = as
	if len(h.keys) == 1 || as.due.Before(h.next) {
		h.next = as.due
	}
}

// goOn says that the first message of a key is gone: the next of the key are due.
func (h *holds) goOn(key store.HeldKey) {
	if key.Key == "" {
		delete(h.keys, key)
		return
	}
	h.put(key, hold{due: time.Now()})
}

// fail says that the first message of a key has failed.
func (h *holds) fail(key store.HeldKey, f failure) {
	if f.bury != nil {
		h.goOn(key)
		return
	}
	h.put(key, hold{due: time.Now().Add(f.pause), failed: true})
}

func (h *holds) has(key store.HeldKey) bool {
	_, ok := h.keys[key]
	return ok
}

// due returns what to read of the keys that are due.
func (h *holds) due(now time.Time) *store.ReadHeld {
	if len(h.keys) == 0 || now.Before(h.next) {
		return nil
	}
	read := &store.ReadHeld{Octets: octetsAtATime}
	h.next = now.Add(time.Hour)
	for key, as := range h.keys {
		if as.due.Before(h.next) { // also of one that is read: it may come out of it as it was
			h.next = as.due
		}
		if !as.due.After(now) && len(read.Keys) < keysAtATime {
			run := runOfAKey
			if as.failed || key.Key == "" {
				run = 1
			}
			read.Keys, read.Runs = append(read.Keys, key), append(read.Runs, run)
		}
	}
	if len(read.Keys) == 0 {
		return nil
	}
	return read
}

// until returns how long it is until one is due, at most limit.
func (h *holds) until(now time.Time, limit time.Duration) time.Duration {
	if len(h.keys) == 0 {
		return limit
	}
	return min(max(h.next.Sub(now), 0), limit)
}

// met forgets the keys of which nothing was read although it was asked for: nothing of them is held back any more.
func (h *holds) met(read *store.ReadHeld) {
	met, octets := map[store.HeldKey]bool{}, int64(0)
	for i := range read.Messages {
		met[keyOf(&read.Messages[i])] = true
		octets += int64(len(read.Messages[i].Payload))
	}
	for _, key := range read.Keys {
		if !met[key] && octets < read.Octets {
			delete(h.keys, key)
		}
	}
}
