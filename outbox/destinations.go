package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/store"
)

// destinations divide what was read among the destinations.
type destinations struct {
	of     func(topic string) string // nil if there is one
	all    map[string]*destination
	at     map[string]*destination // of a topic: it stays there until nothing of it is in hand or left, so that nothing overtakes
	open   func(name string) *destination
	ended  chan delivery
	busy   int
	inHand map[int64]bool // the places of what is under way
	memory *memory

	backDue time.Time      // when what was left may be read again
	isTurn  bool           // of what was not read before that
	wide    int            // how many times as much is read again as otherwise, or by the one destination if all that it is given is refused
	again   []*destination // for these it was just read again, up to the place next
	next    int64
}

func newDestinations(publisher Publisher, memory *memory, open func(name string) *destination) *destinations {
	d := &destinations{all: map[string]*destination{}, at: map[string]*destination{}, open: open, ended: make(chan delivery, mostAtOnce), inHand: map[int64]bool{},
		memory: memory, wide: 1}
	if divider, ok := publisher.(Divider); ok {
		d.of = divider.Destination
	}
	return d
}

// name returns which destination a topic has. One at which the Divider panics is one of its own.
func (d *destinations) name(topic string) (name string, panicked bool) {
	if d.of == nil {
		return "", false
	}
	err := guard.Call(func() error {
		name = d.of(topic)
		return nil
	})
	if err != nil {
		return "without a Destination: " + topic, true
	}
	return name, false
}

// free reports whether a destination takes messages.
func (d *destinations) free(topic string) bool {
	if d.of == nil {
		return true // or nothing is read
	}
	to := d.at[topic]
	if to == nil {
		name, _ := d.name(topic)
		to = d.all[name]
	}
	return d.busy < mostAtOnce && (to == nil || d.isFree(to, time.Now()))
}

// busyTopics are topics whose destinations take nothing now. What is read of them is left.
func (d *destinations) busyTopics(now time.Time) (topics []string) {
	if d.of == nil {
		return nil
	}
	for topic, to := range d.at {
		if len(topics) < mostBusy && !d.isFree(to, now) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// isOpen reports whether there is any use in reading.
func (d *destinations) isOpen(now time.Time) bool {
	to := d.all[""]
	return d.busy < mostAtOnce && (d.of != nil || to == nil || !to.busy && !now.Before(to.rest))
}

func (d *destinations) isFree(to *destination, now time.Time) bool {
	return to.left == 0 && d.mayCall(to, now)
}

func (d *destinations) mayCall(to *destination, now time.Time) bool {
	return !to.busy && !now.Before(to.rest) && d.memory.fits(to.wants)
}

// take divides a batch, and starts to publish what the destinations have room for.
func (d *destinations) take(ctx context.Context, b *batch) {
	if d.of == nil {
		if len(b.messages) > 0 {
			d.start(ctx, d.get(""), b)
		} else if to := d.all[""]; to != nil && d.isFree(to, time.Now()) {
			to.caller.trial.end()
		}
		return
	}
	now, keys, taken := time.Now(), map[store.HeldKey]int{}, 0
	next := map[*destination]*batch{}
	for i := range b.messages {
		m := &b.messages[i]
		to := d.get(m.Topic)
		part, key := next[to], keyOf(m)
		if part == nil && !m.Bare && d.busy+len(next) < mostAtOnce && d.isFree(to, now) {
			if load, ok := d.memory.begin(m.Octets); ok {
				part = &batch{alone: b.alone, again: b.again, load: load}
				next[to] = part
			} else {
				to.wants = m.Octets
			}
		} else if part != nil && (m.Bare || len(part.messages) >= to.share() || keys[key] >= to.usual()/shareOfKey || !d.memory.add(&part.load, m.Octets)) {
			part = nil
		}
		if part == nil {
			if keys[key] = inHandAtOnce; i >= b.held { // nor anything behind it
				to.leave(m.Seq)
			}
			continue
		}
		if keys[key]++; i < b.held {
			part.held++
		}
		part.messages = append(part.messages, *m)
		taken++
	}
	if b.readAgain > 0 {
		d.readAgain(b, taken, now)
	}
	for to, part := range next {
		d.start(ctx, to, part)
	}
	for _, to := range d.again {
		to.leave(d.next)
	}
	d.again = nil
	d.tidy(now)
}

// readAgain decides when what was left is read again the next time, and how much. Destinations that take much of it go on at once, in turn with
// what was not read before. Where most of it is of others, of which the payloads are not read, it is passed over by larger steps.
func (d *destinations) readAgain(b *batch, taken int, now time.Time) {
	whole := 0
	for i := range b.messages {
		if !b.messages[i].Bare {
			whole++
		}
	}
	if len(b.messages) == 0 || worthwhile*taken >= b.readAgain {
		d.isTurn = true
	} else {
		d.backDue = now.Add(readAgain)
	}
	if d.wide = min(2*d.wide, farAhead); 2*whole > b.readAgain {
		d.wide = 1
	}
}

// widen has more read at a time while all that is read is refused by name. What is behind it does not wait then for thousands of reads.
func (d *destinations) widen(o *outcome) {
	if d.wide = min(2*d.wide, farAhead); o.err != nil || o.isLeft || len(o.published) > 0 || len(o.failed) == 0 {
		d.wide = 1
	}
}

func (d *destinations) get(topic string) *destination {
	if to := d.at[topic]; to != nil {
		return to
	}
	name, panicked := d.name(topic)
	to := d.all[name]
	if to == nil {
		to = d.open(name)
		d.all[name] = to
		if panicked {
			to.caller.publisher = d.panicsAgain(to.caller.publisher)
		}
	}
	if d.of != nil {
		to.topics, d.at[topic] = append(to.topics, topic), to
	}
	return to
}

// panicsAgain is a Publisher of a topic at which the Divider has panicked: what it is given fails by that.
func (d *destinations) panicsAgain(publisher Publisher) Publisher {
	return PublisherFunc(func(ctx context.Context, messages []Message) error {
		for i := range messages {
			d.of(messages[i].Topic)
		}
		return publisher.Publish(ctx, messages)
	})
}

// leaveTopics lets the Divider say anew where the topics of a destination go.
func (d *destinations) leaveTopics(to *destination) {
	for _, topic := range to.topics {
		delete(d.at, topic)
	}
	to.topics = nil
}

// tidy forgets destinations of which nothing is to be known.
func (d *destinations) tidy(now time.Time) {
	for name, to := range d.all {
		if !d.isFree(to, now) {
			continue
		}
		if to.caller.trial.end(); !to.caller.hasLones(now) {
			delete(d.all, name)
			d.leaveTopics(to)
		}
	}
}

func (d *destinations) start(ctx context.Context, to *destination, b *batch) {
	to.busy, to.wants = true, 0
	d.busy++
	places := make([]int64, len(b.messages))
	for i := range b.messages {
		places[i] = b.messages[i].Seq
		if d.of != nil {
			d.inHand[places[i]] = true
		}
	}
	began := time.Now()
	go func() {
		did := b.publish(ctx, &to.caller)
		d.ended <- delivery{to, places, b.load, time.Since(began), did}
	}()
}

// end notes that a batch is no longer under way. It returns after which pause there is another one, and whether something is wrong.
func (d *destinations) end(l delivery, c *RelayConfig) (pause time.Duration) {
	to, o := l.to, l.did
	to.busy = false
	d.busy--
	for _, place := range l.places {
		delete(d.inHand, place)
	}
	d.memory.end(l.load)
	to.fit(l, c)
	if d.of == nil {
		d.widen(o)
	}
	if o.left > 0 && (d.of != nil || !o.turnOver) {
		to.leave(o.left)
	}
	if to.left == 0 {
		d.leaveTopics(to)
	}
	if o.err == nil {
		to.pauses = pausesOf(c)
		return 0
	}
	if !o.isAnswered() {
		if pause = max(to.pauses.Next(), o.rest); !isAway(o.err) {
			pause = min(pause, max(inDoubt, c.MinPause))
			if to.caller.isThere() {
				pause = min(pause, readAgain)
			}
		}
	}
	to.rest = time.Now().Add(pause)
	return pause
}

// isWide reports whether one of them is in search of a message that goes, far behind those that do not.
func (d *destinations) isWide() bool {
	for _, to := range d.all {
		if !to.busy && to.caller.trial.isWide() {
			return true
		}
	}
	return false
}

// back returns the destinations that have left something and are free now, and the place from which to read it again.
func (d *destinations) back(now time.Time) (free []*destination, place int64) {
	if d.isTurn || now.Before(d.backDue) || d.busy >= mostAtOnce {
		d.isTurn = false
		return nil, 0
	}
	for _, to := range d.all {
		if to.left == 0 || !d.mayCall(to, now) {
			continue
		}
		if free = append(free, to); place == 0 || to.left < place {
			place = to.left
		}
		to.left = 0
	}
	return free, place
}

// until returns how long it is until a destination is free that has left something, at most limit.
func (d *destinations) until(now time.Time, limit time.Duration) time.Duration {
	for _, to := range d.all {
		if (to.left > 0 || d.of == nil) && !to.busy && (to.left > 0 || now.Before(to.rest)) && d.memory.fits(to.wants) {
			due := to.rest
			if d.backDue.After(due) {
				due = d.backDue
			}
			limit = min(limit, max(due.Sub(now), 0))
		}
	}
	return limit
}
