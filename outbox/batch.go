package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// batch are messages that were read together.
type batch struct {
	messages []store.Queued // first those that were held back
	held     int            // how many those are
	behind   []int64        // places of others that were read, and are to be held back
}

// waves splits a batch into parts that may be published together. Unless the Publisher keeps the order of a key by itself, a
// part has one message of each key: then whatever becomes of one, the next was not yet given to it.
func (b *batch) waves(keepsOrder bool) [][]int {
	var waves [][]int
	met := make(map[store.HeldKey]int, len(b.messages))
	for i := range b.messages {
		wave := 0
		if key := keyOf(&b.messages[i]); key.Key != "" && !keepsOrder {
			wave = met[key]
			met[key]++
		}
		if wave == len(waves) {
			waves = append(waves, nil)
		}
		waves[wave] = append(waves[wave], i)
	}
	return waves
}

// leave notes that a message was not dealt with. What is held back stays so.
func (b *batch) leave(i int, o *outcome) {
	if place := b.messages[i].Seq; i >= b.held && (o.left == 0 || place < o.left) {
		o.left = place
	}
}

// run hands a batch to the Publisher.
func (w *worker) run(ctx context.Context, b *batch) *outcome {
	o := &outcome{behind: b.behind}
	stuck := map[store.HeldKey]bool{} // keys of which a message has failed
	for _, wave := range b.waves(keepsOrder(w.relay.publisher)) {
		wave = slices.DeleteFunc(wave, func(i int) bool {
			isStuck := stuck[keyOf(&b.messages[i])]
			if isStuck {
				o.behind = append(o.behind, b.messages[i].Seq)
			}
			return isStuck
		})
		for len(wave) > 0 {
			n := min(w.size, len(wave))
			if o.err == nil && ctx.Err() == nil {
				w.part(ctx, b, wave[:n], o, stuck)
			} else {
				for _, i := range wave[:n] {
					b.leave(i, o)
				}
			}
			wave = wave[n:]
		}
	}
	return o
}

// part makes one call of the Publisher.
func (w *worker) part(ctx context.Context, b *batch, part []int, o *outcome, stuck map[store.HeldKey]bool) {
	messages := make([]Message, len(part))
	for n, i := range part {
		m := &b.messages[i]
		messages[n] = Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
	}
	begin := time.Now()
	hung, err := w.publish(ctx, messages)
	took := time.Since(begin)
	var panic *panicked
	if errors.As(err, &panic) && len(part) > 1 { // which of them it was: each is tried by itself
		w.size = 1
		for n := range part {
			if stuck[keyOf(&b.messages[part[n]])] {
				o.behind = append(o.behind, b.messages[part[n]].Seq)
				continue
			}
			if o.err != nil {
				b.leave(part[n], o)
				continue
			}
			w.part(ctx, b, part[n:n+1], o, stuck)
		}
		return
	}
	if errors.As(err, &panic) {
		w.relay.config.Logger.Error("outbox: the Publisher has panicked", "message", messages[0].ID, "panic", panic.value, "stack", string(panic.stack))
		err = &PublishError{Failed: map[string]error{messages[0].ID: panic}}
	}
	w.sort(b, part, messages, err, took, o, stuck)
	o.hung = hung
}

// sort notes what became of the messages of a call.
func (w *worker) sort(b *batch, part []int, messages []Message, err error, took time.Duration, o *outcome, stuck map[store.HeldKey]bool) {
	failed, blameless, unknown := verdict(messages, err)
	published, blamed := len(o.published), len(o.failed)
	for n, i := range part {
		m := &b.messages[i]
		key := keyOf(m)
		reason := failed[n]
		switch {
		case reason == nil && unknown && stuck[key], reason != nil && stuck[key]:
			o.behind = append(o.behind, m.Seq)
		case reason == nil && unknown:
			b.leave(i, o)
		case reason == nil:
			o.published = append(o.published, m.Seq)
			if i < b.held {
				w.holds.goOn(key)
			}
		case ended(reason): // the context was over: that is nobody's fault
			b.leave(i, o)
			blameless = errors.Join(blameless, reason)
		default:
			w.holds.fail(key, o.fail(&w.relay.config, m, reason))
			stuck[key] = true
		}
	}
	o.err = blameless
	w.fit(blameless)
	if observer := w.relay.config.Observer; observer != nil {
		observer.ObservePublish(len(part), len(o.published)-published, len(o.failed)-blamed, took, blameless)
	}
}

// fit makes calls smaller while the Publisher has trouble with them as a whole, and larger again.
func (w *worker) fit(err error) {
	if err != nil {
		w.size = max(w.size/2, 1)
		return
	}
	w.size = min(2*w.size, w.relay.config.BatchSize)
}
