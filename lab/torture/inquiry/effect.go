package inquiry

import (
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkEffects checks that each consumer of the topic handled the letter once or has it as a dead
// letter.
func (f *file) checkEffects(id string, k *known) {
	if len(k.said) == 0 {
		return // never committed; checkPublished reports it
	}
	for _, c := range f.consumers() {
		if c.Topic != k.said[0].Topic {
			continue
		}
		n, dead := k.effects[c.Name], k.dead[c.Name]
		switch {
		case n > 1:
			f.violates(rule.EffectOnce, id, "%s has handled it %d times", c.Name, n)
		case n == 1 && dead != nil:
			f.violates(rule.EffectOnce, id, "%s has handled it, and it is a dead letter: %s", c.Name, dead.Reason)
		case n == 1 && (len(k.taken) == 0 || k.said[0].Fate.MustDie()):
			f.violates(rule.Effect, id, "%s has an effect of it, which cannot be", c.Name)
		case n == 0 && dead == nil && len(k.taken) > 0:
			f.violates(rule.Effect, id, "%s has neither handled it nor is it a dead letter; it remembers it: %t", c.Name, k.inbox[c.Name])
		case n == 1 && !k.inbox[c.Name]:
			f.violates(rule.Effect, id, "%s has handled it and does not remember it", c.Name)
		}
		if dead != nil {
			f.checkDeadOfInbox(id, k, dead)
		}
		if c.Answers {
			f.checkCaused(id, k, n)
		}
	}
}

func (f *file) checkDeadOfInbox(id string, k *known, dead *letter.Dead) {
	l := k.said[0]
	switch {
	case !l.Fate.CanDie() || dead.Attempts < MaxAttempts:
		f.violates(rule.Dead, id, "it has died for %s after %d attempts: %s", dead.Consumer, dead.Attempts, dead.Reason)
	case dead.Reason == "" || dead.Source != l.Topic || string(dead.Payload) != string(l.Encode()):
		f.violates(rule.Dead, id, "what is said of it is not true: %+v", *dead)
	}
}

// checkCaused checks that the letters which a handler adds to the outbox are committed with its
// effect.
func (f *file) checkCaused(id string, k *known, effects int) {
	want := 0
	if k.said[0].IsAnswered() {
		want = effects
	}
	if k.causes != want {
		f.violates(rule.Caused, id, "it has %d effects and %d letters that answer it", effects, k.causes)
	}
}
