package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/repeat"
	"github.com/idem-go/idem/internal/store"
)

// batch are messages that were read together.
type batch struct {
	messages []store.Queued  // first those that were held back
	held     int             // how many those are
	alone    map[int64]*lone // places of messages that have failed without being named: each is published alone
	again    bool            // another process may have had them in hand, and not only what was held back
	more     bool            // there may be more to read
	load     load            // what it takes of the memory

	readAgain int // how much was read because destinations have left it
}

// groups splits a batch into parts that may be published together. Unless the Publisher keeps the order of a key by itself, a
// part has one message of each key: then whatever happens to one, the next was not yet given to it.
func (b *batch) groups(keepsOrder bool) [][]int {
	var groups [][]int
	met := make(map[store.HeldKey]int, len(b.messages))
	for i := range b.messages {
		if b.alone[b.messages[i].Seq] != nil {
			continue
		}
		group := 0
		if key := keyOf(&b.messages[i]); key.Key != "" && !keepsOrder {
			group = met[key]
			met[key]++
		}
		if group == len(groups) {
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], i)
	}
	return groups
}

// round is a batch on its way to the Publisher.
type round struct {
	*batch
	*caller
	stuck map[store.HeldKey]bool // keys of which a message has failed
	later map[store.HeldKey]bool // keys of which a message was not sent: it comes first in the next batch
	dealt []bool                 // with which messages, by their index
	did   *outcome

	answered bool          // a message was published, or was named
	failing  []int         // what was in a call of all that has failed, and is not known why
	took     time.Duration // the last call
}

// turnOfKeys is for how long messages are published before others are read. If it is one message of each key after the other, those have their turn.
const turnOfKeys = time.Second

// all publishes all that there is, until something is wrong.
func (r *round) all(ctx context.Context) {
	began := time.Now()
	for n, group := range r.groups(r.keepsOrder()) {
		for len(group) > 0 {
			if r.did.err != nil || ctx.Err() != nil {
				return
			}
			if (n > 0 || r.answered) && time.Since(began) > turnOfKeys || len(r.did.published) > 2*r.config.BatchSize+heldAtATime {
				r.did.turnOver = n > 0
				return
			}
			size := min(r.size, len(group))
			if part := slices.DeleteFunc(slices.Clone(group[:size]), r.isStuck); len(part) > 0 {
				if r.part(ctx, part); r.did.err == nil {
					r.trial.succeed()
				} else {
					r.failing = part
				}
			}
			group = group[size:]
		}
	}
	if r.did.err == nil {
		clear(r.trial.suspects)
	}
	began = time.Now()
	for i := range r.messages {
		if r.alone[r.messages[i].Seq] != nil && r.did.err == nil && ctx.Err() == nil && time.Since(began) < turnOfKeys && !r.isStuck(i) {
			r.part(ctx, []int{i})
			r.blame(ctx, i)
		}
	}
}

// isStuck reports whether a message is behind one that has failed, and notes it, or behind one that was not sent.
func (r *round) isStuck(i int) bool {
	m := &r.messages[i]
	stuck := r.stuck[keyOf(m)]
	if stuck && !r.dealt[i] && i >= r.held {
		r.did.behind = append(r.did.behind, behind{m.Seq, keyOf(m)})
	}
	r.dealt[i] = r.dealt[i] || stuck
	return stuck || r.later[keyOf(m)]
}

// part publishes messages in one call of the Publisher, or in several if some have one ID: a Publisher names messages by their IDs.
func (r *round) part(ctx context.Context, part []int) {
	for n := r.untilRepeated(part); n < len(part); n = r.untilRepeated(part) {
		r.call(ctx, part[:n])
		if part = slices.DeleteFunc(slices.Clone(part[n:]), r.isStuck); len(part) == 0 || r.did.err != nil || r.did.hung != nil || ctx.Err() != nil {
			return
		}
	}
	r.call(ctx, part)
}

// untilRepeated is how many messages there are in front of the first one whose ID is that of one before, of another topic as a rule.
func (r *round) untilRepeated(part []int) int {
	topic := r.messages[part[0]].Topic
	if !slices.ContainsFunc(part, func(i int) bool { return r.messages[i].Topic != topic }) {
		return len(part)
	}
	met := make(map[string]bool, len(part))
	for n, i := range part {
		id := r.messages[i].ID
		if met[id] {
			return n
		}
		met[id] = true
	}
	return len(part)
}

// call makes one call of the Publisher.
func (r *round) call(ctx context.Context, part []int) {
	messages := make([]Message, len(part))
	for n, i := range part {
		messages[n] = messageOf(&r.messages[i])
	}
	began := time.Now()
	a := r.caller.publish(repeat.With(ctx, r.repeats(part)), messages)
	r.took = time.Since(began)
	if isPanic(a.err) {
		if len(part) > 1 {
			r.oneByOne(ctx, part)
			return
		}
		a.err = &PublishError{Failed: map[string]error{messages[0].ID: a.err}}
	}
	r.sort(ctx, part, messages, a)
	r.did.hung = a.hung
}

// repeats are messages of a part that may have been given to a Publisher before.
func (r *round) repeats(part []int) map[string]bool {
	ids := map[string]bool{}
	for _, i := range part {
		if r.again || i < r.held {
			ids[r.messages[i].ID] = true
		}
	}
	return ids
}

// isPanic reports whether a call has panicked. If a Publisher names the messages at which a function of its own has, it has published
// the others.
func isPanic(err error) bool {
	if named, _ := namedIn(err); named != nil {
		return false
	}
	_, panicked := errors.AsType[*guard.Panic](err)
	return panicked
}

// oneByOne finds out at which message the Publisher panics.
func (r *round) oneByOne(ctx context.Context, part []int) {
	for n, i := range part {
		if !r.isStuck(i) && r.did.err == nil && ctx.Err() == nil {
			r.part(ctx, part[n:n+1])
		}
	}
	r.size = 1
}

// sort notes the outcome of the messages of a call. Those of which nothing is noted are left for another one.
func (r *round) sort(ctx context.Context, part []int, messages []Message, a answer) {
	v := sortOut(messages, a)
	published, blamed := len(r.did.published), len(r.did.failed)
	for n, i := range part {
		m := &r.messages[i]
		failed, isAway := v.failed[n], v.away[n]
		switch {
		case (failed != nil || isAway != nil || v.unsent[n] || v.open[n] || v.unknown) && r.isStuck(i):
		case isAway != nil && !r.sole:
			v.err = r.did.away(isAway, v.err)
		case isAway != nil:
			r.fail(i, isAway)
		case failed != nil:
			r.fail(i, failed)
		case v.unsent[n]:
			r.later[keyOf(m)] = true
		case v.unknown, v.open[n]:
		default:
			r.did.published, r.dealt[i] = append(r.did.published, m.Seq), true
			if i < r.held {
				r.did.gone = append(r.did.gone, keyOf(m))
			}
		}
	}
	if v.unknown {
		v.err = r.did.away(v.err, nil)
	}
	if len(r.did.published) > published || len(r.did.failed) > blamed {
		r.answered, r.answeredAt = true, time.Now()
	}
	if len(r.did.published) > published {
		r.awaySince, r.publishedAt = time.Time{}, time.Now()
	}
	r.did.err = v.err
	r.fit(v.err)
	r.observe(ctx, len(part), len(r.did.published)-published, r.did.failed[blamed:], r.took, v.err)
}

// observe tells the Observer of a call. Those of its messages that count no attempt have not failed for it, and one that is to come later is no
// error.
func (r *round) observe(ctx context.Context, given, published int, failed []failure, took time.Duration, err error) {
	if r.config.Observer == nil {
		return
	}
	counted := 0
	for i := range failed {
		if counted += failed[i].count; failed[i].count == 0 && !failed[i].later && err == nil {
			err = failed[i].err
		}
	}
	data := TracePublishedData{Given: given, Published: published, Failed: counted, Duration: took, Err: err, Cause: idem.CauseOf(err)}
	guard.Do(r.config.Logger, "outbox: the Observer", func() { r.config.Observer.TracePublished(ctx, data) })
}

// observeFound tells the Observer of an attempt that was counted after the call in which it has failed, because no message was named in that.
func (r *round) observeFound(ctx context.Context, f *failure) {
	if f.count > 0 {
		r.observe(ctx, 0, 0, []failure{*f}, 0, nil)
	}
}

// fail notes that a message has failed.
func (r *round) fail(i int, err error) *failure {
	guard.Log(r.config.Logger, "outbox: a function of the Publisher's", err, "message", r.messages[i].ID)
	f := r.did.fail(r.config, &r.messages[i], err)
	r.stuck[keyOf(&r.messages[i])], r.dealt[i] = true, true
	return f
}

// blame has the message of the last call, which had no other, held back for an error that names none. It counts an attempt for the failure
// before, if another message was published since then: otherwise the destination may be away. An [AwayError] counts none. Behind a stop, which
// ends the context of the call, the error may be that of the stop.
func (r *round) blame(ctx context.Context, i int) {
	if r.did.err == nil || r.dealt[i] || r.did.hung != nil || errors.Is(r.did.err, errLost) || ctx.Err() != nil {
		return
	}
	err, was := r.did.err, r.alone[r.messages[i].Seq]
	is := &lone{failed: time.Now(), misses: was.misses + 1}
	switch {
	case isAway(err):
		is = was
	case was.failed.IsZero() || r.trial.isUnwell() || !r.publishedAt.After(was.failed):
		err = &AwayError{Err: err}
	}
	f := r.fail(i, err)
	f.alone, r.loneAt, r.did.err, r.did.rest = is, time.Now(), nil, 0
	r.space(f, r.took)
	r.observeFound(ctx, f)
	r.fit(nil)
}

// shareOfLones is of how much of the time a destination has that for messages which were found to be to blame.
const shareOfLones = 5

// space prolongs the pause of such a message, so that all of them together take no more than their share of the time, however long a call takes.
func (c *caller) space(f *failure, took time.Duration) {
	now := time.Now()
	if c.lonesFrom.Before(now) {
		c.lonesFrom = now
	}
	c.lonesFrom = c.lonesFrom.Add(shareOfLones * took)
	f.pause = max(f.pause, min(c.lonesFrom.Sub(now), maxRest))
}

// close notes what was not dealt with, and whether the destination is away for good.
func (r *round) close() {
	o := r.did
	moved := len(o.published)+len(o.failed) > 0
	if o.err != nil && !moved && r.awaySince.IsZero() {
		r.awaySince = time.Now()
	}
	waits := map[store.HeldKey]bool{}
	for i := range r.messages {
		m := &r.messages[i]
		switch {
		case r.dealt[i]:
		case o.err != nil && r.isGivenUp(m) && !waits[keyOf(m)] && o.giveUp(r.config, m):
		default:
			waits[keyOf(m)], o.isLeft = m.Key != "", true
			if i >= r.held && (o.left == 0 || m.Seq < o.left) {
				o.left = m.Seq
			}
			if o.turnOver {
				o.leftKeys = append(o.leftKeys, keyOf(m))
			}
		}
	}
	if o.err == nil && !moved && o.isLeft && !o.turnOver {
		o.err = ErrUnsent
	}
	if o.err != nil {
		r.trial.on = true
	}
}

// givenUpAfter is for how long a destination has to be away, without an interruption, before a message dies of it.
const givenUpAfter = time.Hour

// isGivenUp reports whether a message has waited for too long for a destination that is away.
func (c *caller) isGivenUp(m *store.Queued) bool {
	limit := c.config.MaxAway
	return limit > 0 && time.Since(m.CreatedAt) > limit && !c.awaySince.IsZero() && time.Since(c.awaySince) >= min(limit, givenUpAfter)
}

// hasLones reports whether a message that was found to be to blame may be due again. Whether that counts depends on what was published meanwhile.
func (c *caller) hasLones(now time.Time) bool {
	return now.Sub(c.loneAt) < 2*max(c.config.MaxPause, maxRest)
}

func messageOf(m *store.Queued) Message {
	return Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
}
