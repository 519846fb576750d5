package inquiry

import (
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// MaxAttempts is how often a message may fail, in the outbox and in an inbox.
const MaxAttempts = 5

// checkPublished checks that a committed letter was published as it was added or is a dead letter,
// and that no other letter was published.
func (f *file) checkPublished(id string, k *known) {
	if len(k.said) == 0 {
		if len(k.taken) > 0 {
			f.violates(rule.Said, id, "nobody has committed it, and the broker has taken it %d times", len(k.taken))
		}
		return
	}
	dead := k.dead[""]
	switch {
	case k.waiting > 0:
		f.violates(rule.Published, id, "it is still in the outbox")
	case len(k.taken) == 0 && dead == nil:
		f.violates(rule.Published, id, "the broker has never taken it, and it is no dead letter")
	}
	if dead != nil {
		f.checkDeadOfOutbox(id, k, dead)
	}
	for _, e := range k.taken {
		if e.Letter.Topic == letter.Nowhere && e.At < f.options.Until {
			f.violates(rule.Dead, id, "it has no destination, and the broker has taken it")
		}
		if e.Altered || e.Letter != k.said[0] {
			f.violates(rule.AsAdded, id, "it was added as %+v and published as %+v", k.said[0], e.Letter)
			return
		}
	}
}

// checkDeadOfOutbox checks that the broker refused a dead letter itself MaxAttempts times. Refusals
// of an earlier letter of its key must not count.
func (f *file) checkDeadOfOutbox(id string, k *known, dead *letter.Dead) {
	switch {
	case dead.Attempts < MaxAttempts || k.refusals < MaxAttempts && k.said[0].Topic != letter.Nowhere:
		f.violates(rule.Dead, id, "it has died after %d attempts, and was refused %d times", dead.Attempts, k.refusals)
	case dead.Reason == "" || dead.Source != k.said[0].Topic || dead.Key != k.said[0].Key || string(dead.Payload) != string(k.said[0].Encode()):
		f.violates(rule.Dead, id, "what is said of it is not true: %+v", *dead)
	}
}

// place identifies an order: a topic and a key.
type place struct{ topic, key string }

// checkOrder checks that the letters of a key were published, and handled by ordered consumers, in
// the order of their numbers. Only the first publication of a letter counts.
func (f *file) checkOrder() {
	last, seen := map[place]letter.Letter{}, map[string]bool{}
	for _, e := range f.taken {
		l := e.Letter
		if l.Key == "" || seen[l.ID] {
			continue
		}
		seen[l.ID] = true
		at := place{l.Topic, l.Key}
		if before, ok := last[at]; ok && before.N > l.N {
			f.violates(rule.PublishOrder, l.ID, "it was published behind number %d, message %s", before.N, before.ID)
			continue
		}
		last[at] = l
	}
	for _, c := range f.consumers() {
		if c.Ordered {
			f.checkEffectOrder(c)
		}
	}
}

func (f *file) checkEffectOrder(c letter.Consumer) {
	last := map[place]letter.Letter{}
	for _, e := range f.effects {
		k := f.letters[e.ID]
		if e.Consumer != c.Name || len(k.said) == 0 || k.said[0].Key == "" {
			continue
		}
		l := k.said[0]
		at := place{l.Topic, l.Key}
		if before, ok := last[at]; ok && before.N > l.N {
			f.violates(rule.EffectOrder, l.ID, "%s has handled it behind number %d, message %s", c.Name, before.N, before.ID)
			continue
		}
		last[at] = l
	}
}
