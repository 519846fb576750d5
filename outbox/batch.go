package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem"
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

// round is a batch on its way to the Publisher.
type round struct {
	*batch
	*caller
	holds *holds
	stuck map[store.HeldKey]bool // keys of which a message has failed
	did   *outcome
}

// publish hands a batch to the Publisher.
func (b *batch) publish(ctx context.Context, c *caller, h *holds) *outcome {
	r := &round{batch: b, caller: c, holds: h, stuck: map[store.HeldKey]bool{}, did: &outcome{behind: b.behind}}
	for _, wave := range b.waves(keepsOrder(c.publisher)) {
		for len(wave) > 0 {
			n := min(c.size, len(wave))
			part := slices.DeleteFunc(slices.Clone(wave[:n]), r.isStuck) // an OrderKeeper may have failed in the part before
			wave = wave[n:]
			switch {
			case len(part) == 0:
			case r.did.err == nil && ctx.Err() == nil:
				r.part(ctx, part)
			default:
				r.leave(part)
			}
		}
	}
	return r.did
}

// isStuck reports whether a message is behind one that has failed, and notes it.
func (r *round) isStuck(i int) bool {
	m := &r.messages[i]
	stuck := r.stuck[keyOf(m)]
	if stuck {
		r.did.behind = append(r.did.behind, m.Seq)
	}
	return stuck
}

// leave notes that messages were not dealt with. What is held back stays so.
func (r *round) leave(part []int) {
	for _, i := range part {
		if place := r.messages[i].Seq; i >= r.held && (r.did.left == 0 || place < r.did.left) {
			r.did.left = place
		}
	}
}

// part makes one call of the Publisher.
func (r *round) part(ctx context.Context, part []int) {
	messages := make([]Message, len(part))
	for n, i := range part {
		m := &r.messages[i]
		messages[n] = Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
	}
	began := time.Now()
	hung, err := r.caller.publish(ctx, messages)
	took := time.Since(began)
	var panic *panicked
	if errors.As(err, &panic) && len(part) > 1 {
		r.oneByOne(ctx, part)
		return
	}
	if errors.As(err, &panic) {
		r.config.Logger.Error("outbox: the Publisher has panicked", "message", messages[0].ID, "panic", panic.value, "stack", string(panic.stack))
		err = &PublishError{Failed: map[string]error{messages[0].ID: panic}}
	}
	r.sort(ctx, part, messages, err, took)
	r.did.hung = hung
}

// oneByOne finds out at which message the Publisher panics.
func (r *round) oneByOne(ctx context.Context, part []int) {
	for n, i := range part {
		switch {
		case r.isStuck(i):
		case r.did.err == nil && ctx.Err() == nil:
			r.part(ctx, part[n:n+1])
		default:
			r.leave(part[n : n+1])
		}
	}
	r.size = 1
}

// sort notes what became of the messages of a call.
func (r *round) sort(ctx context.Context, part []int, messages []Message, err error, took time.Duration) {
	failed, blameless, unknown := verdict(messages, err)
	published, blamed := len(r.did.published), len(r.did.failed)
	for n, i := range part {
		m := &r.messages[i]
		key, reason := keyOf(m), failed[n]
		switch {
		case (reason != nil || unknown) && r.isStuck(i):
		case reason == nil && unknown:
			r.leave(part[n : n+1])
		case reason == nil:
			r.did.published = append(r.did.published, m.Seq)
			if i < r.held {
				r.holds.goOn(key)
			}
		case ended(reason): // the context was over: that is nobody's fault
			r.leave(part[n : n+1])
			blameless = errors.Join(blameless, reason)
		default:
			r.holds.fail(key, r.did.fail(r.config, m, reason))
			r.stuck[key] = true
		}
	}
	r.did.err = blameless
	r.fit(blameless)
	if observer := r.config.Observer; observer != nil {
		observer.TracePublished(ctx, TracePublishedData{
			Given: len(part), Published: len(r.did.published) - published, Failed: len(r.did.failed) - blamed,
			Duration: took, Err: blameless, Cause: idem.CauseOf(blameless),
		})
	}
}
