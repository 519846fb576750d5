// Package inquiry decides whether a run kept every promise of packages outbox and inbox. Its
// sources are the events of the workers, the books of the broker, and the final state of the
// database. It shares no code with the library.
package inquiry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that are not in its events.
type Options struct {
	Start time.Duration // when the run began; times are printed relative to it
	// Quiet reports that nothing was broken before Until, so that no letter may be late.
	Quiet bool
	Until time.Duration
	// Direct reports that there was no broker. A letter counts as published when a consumer has
	// handled it.
	Direct bool
}

// file collects everything that is known of a run.
type file struct {
	options Options
	letters map[string]*known // letters by id
	events  []letter.Event
	taken   []letter.Entry // letters that the broker took, in order
	effects []*letter.Effect
	found   []rule.Violation
}

type known struct {
	said     []letter.Letter // the letter as it was committed to the outbox; at most one
	taken    []letter.Entry
	refusals int
	waiting  int
	effects  map[string]int          // number of effects, by consumer
	inbox    map[string]bool         // whether the inbox has the letter, by consumer
	dead     map[string]*letter.Dead // dead letters by consumer; "" is the outbox
	causes   int                     // number of letters that were written in answer to this one
}

// Run checks a run by the state of the database, the books of the broker, and the events of the
// workers.
func Run(state *letter.State, books []letter.Entry, events []letter.Event, options Options) *rule.Result {
	f := &file{options: options, letters: map[string]*known{}, events: events, effects: state.Effects}
	f.readState(state)
	for _, e := range books {
		k := f.of(e.Letter.ID)
		if !e.Taken {
			k.refusals++
			continue
		}
		k.taken = append(k.taken, e)
		f.taken = append(f.taken, e)
	}
	if options.Direct {
		f.takeEffects()
	}
	for id, k := range f.letters {
		f.checkPublished(id, k)
		f.checkEffects(id, k)
	}
	f.checkOrder()
	f.checkTold()
	if options.Quiet {
		f.checkLate()
	}
	return &rule.Result{Violations: f.found, Calls: len(state.Said) + len(state.Effects), Keys: len(f.letters)}
}

func (f *file) of(id string) *known {
	k := f.letters[id]
	if k == nil {
		k = &known{effects: map[string]int{}, inbox: map[string]bool{}, dead: map[string]*letter.Dead{}}
		f.letters[id] = k
	}
	return k
}

func (f *file) readState(state *letter.State) {
	for _, l := range state.Said {
		k := f.of(l.ID)
		k.said = append(k.said, l)
		if l.Cause != "" {
			f.of(l.Cause).causes++
		}
	}
	for _, e := range state.Effects {
		f.of(e.ID).effects[e.Consumer]++
	}
	for _, w := range state.Waiting {
		f.of(w.ID).waiting++
	}
	for _, d := range state.Dead {
		f.of(d.ID).dead[d.Consumer] = d
	}
	for _, i := range state.Inbox {
		f.of(i.ID).inbox[i.Consumer] = true
	}
	// The workers lock rows in an order that cannot deadlock, so a deadlock is a defect of the
	// library.
	if state.Deadlocks > 0 {
		f.found = append(f.found, rule.Violation{Rule: rule.NoDeadlock, Detail: fmt.Sprintf("there were %d", state.Deadlocks)})
	}
}

func (f *file) consumers() []letter.Consumer {
	if f.options.Direct {
		return letter.Direct()
	}
	return letter.Consumers()
}

// takeEffects replaces the books of the broker in a run without a broker. A letter counts as taken
// when a consumer handled it or when it became a dead letter of a consumer. The order of the
// letters is the order in which they were handled.
func (f *file) takeEffects() {
	for _, e := range f.effects {
		k := f.of(e.ID)
		taken := letter.Entry{Taken: true, At: e.At, Letter: letter.Letter{ID: e.ID}}
		if len(k.said) > 0 {
			taken.Letter = k.said[0]
		}
		k.taken = append(k.taken, taken)
		f.taken = append(f.taken, taken)
	}
	for _, k := range f.letters {
		for consumer := range k.dead {
			if consumer != "" && len(k.said) > 0 && len(k.taken) == 0 {
				k.taken = append(k.taken, letter.Entry{Taken: true, At: f.options.Until, Letter: k.said[0]})
			}
		}
	}
}

func (f *file) violates(r rule.Rule, id string, format string, args ...any) {
	v := rule.Violation{Rule: r, Scope: "message " + id, Detail: fmt.Sprintf(format, args...)}
	if k := f.letters[id]; k != nil && len(k.said) > 0 {
		l := k.said[0]
		v.Key = fmt.Sprintf("%s %q, number %d, fate %q", l.Topic, l.Key, l.N, l.Fate)
	}
	f.found = append(f.found, v)
}

// Take reads the state of the database in one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*letter.State, error) {
	s := &letter.State{}
	var said []*struct{ Letter []byte }
	var counts []*struct{ Deadlocks int }
	err := ledger.Snapshot(ctx, conn,
		ledger.Into(&said, `SELECT convert_to(letter, 'UTF8') FROM torture.said`),
		ledger.Into(&s.Waiting, `SELECT id::text FROM idem.outbox UNION ALL SELECT id::text FROM idem.delayed`),
		ledger.Into(&s.Effects, `SELECT consumer, id, at FROM torture.heard ORDER BY place`),
		ledger.Into(&s.Dead, `SELECT consumer, source, id, key, reason, payload, attempts FROM idem.dead_letters`),
		ledger.Into(&s.Inbox, `SELECT consumer, id FROM idem.inbox`),
		ledger.Into(&counts, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`),
	)
	for _, row := range said {
		l, decoded := letter.Decode(row.Letter)
		s.Said, err = append(s.Said, l), errors.Join(err, decoded)
	}
	for _, c := range counts {
		s.Deadlocks = c.Deadlocks
	}
	return s, err
}

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

// checkDeadOfOutbox checks that the broker refused the dead letter MaxAttempts times. Refusals of
// an earlier letter with the same key must not count.
func (f *file) checkDeadOfOutbox(id string, k *known, dead *letter.Dead) {
	switch {
	case dead.Attempts < MaxAttempts || k.refusals < MaxAttempts && k.said[0].Topic != letter.Nowhere:
		f.violates(rule.Dead, id, "it has died after %d attempts, and was refused %d times", dead.Attempts, k.refusals)
	case dead.Reason == "" || dead.Source != k.said[0].Topic || dead.Key != k.said[0].Key || string(dead.Payload) != string(k.said[0].Encode()):
		f.violates(rule.Dead, id, "what is said of it is not true: %+v", *dead)
	}
}

// place identifies a sequence of letters by their topic and key.
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

// checkTold checks the outcomes that the inbox reported to consumers for their deliveries.
func (f *file) checkTold() {
	for _, e := range f.events {
		if e.Kind != letter.KindTold {
			continue
		}
		for _, a := range e.Answers {
			f.checkAnswer(&e, &a)
		}
	}
}

func (f *file) checkAnswer(e *letter.Event, a *letter.Answer) {
	k := f.of(a.ID)
	switch {
	case a.Forged && (a.Outcome == history.Executed || a.Outcome == history.Replayed || a.Outcome == history.Died):
		f.violates(rule.Forged, a.ID, "%v, of %s, was told that it is %s", e.Op, e.Consumer, a.Outcome)
	case !a.Forged && a.Outcome == history.Mismatch:
		f.violates(rule.Forged, a.ID, "%v, of %s, was told that it has another payload, and it has not", e.Op, e.Consumer)
	case !a.Forged && a.Outcome.Answered() && k.effects[e.Consumer] == 0:
		f.violates(rule.DoneTold, a.ID, "%v, of %s, was told that it is %s", e.Op, e.Consumer, a.Outcome)
	case a.Outcome == history.Died && k.dead[e.Consumer] == nil:
		f.violates(rule.Dead, a.ID, "%v, of %s, was told that it is a dead letter: %s", e.Op, e.Consumer, a.Err)
	}
}

// soon is how long a message may wait after its commit on an infinitely fast machine, while the
// broker is available.
const soon = 2 * time.Second

// waits allows for a slow machine: a message may also wait for this number of average probes. A
// probe is one round trip to the database and one to the broker. After an error that names no
// message, the relay publishes up to a hundred messages one by one, and each takes about as long as
// a probe.
const waits = 200

// checkLate checks that each letter was published soon after its commit, or soon after its delay if
// it has one, and not before the delay. The limit grows with the average length of the probes at
// that time, because a slow machine delays letters and probes alike.
func (f *file) checkLate() {
	for _, e := range f.events {
		if e.Kind == letter.KindSay {
			f.checkEarly(e)
		}
		if e.Kind != letter.KindSaid || e.Outcome != history.Executed {
			continue
		}
		for _, id := range e.IDs {
			published := f.options.Until
			for _, taken := range f.of(id).taken {
				published = min(published, taken.At)
			}
			limit := soon + waits*f.averageProbe(e.At, published)
			if late := published - e.At - e.Took; late > limit {
				f.violates(rule.InTime, id, "it was committed at %v, and published %v later or not at all; the machine allows for %v",
					e.At-f.options.Start, late, limit)
			}
		}
	}
}

// checkEarly checks that no letter of the event was published before its delay had passed.
func (f *file) checkEarly(e letter.Event) {
	for _, id := range e.IDs {
		for _, taken := range f.of(id).taken {
			if after := taken.At - e.At; after < e.Took {
				f.violates(rule.InTime, id, "it was held back for %v, and published after %v", e.Took, after)
			}
		}
	}
}

func (f *file) averageProbe(from, until time.Duration) time.Duration {
	var total, probes time.Duration
	for _, e := range f.events {
		if e.Kind == letter.KindProbe && from <= e.At && e.At-e.Took <= until {
			total += e.Took
			probes++
		}
	}
	return total / max(probes, 1)
}
