// Package inquiry decides whether a run kept every promise of packages outbox and inbox. Its sources
// are the events of the workers, the books of the broker, and the final state of the database. It
// shares no code with the library.
package inquiry

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that are not in its events.
type Options struct {
	Start time.Duration // of the run; times are printed relative to it
	// Quiet reports that nothing was broken before Until, so that no letter may be late.
	Quiet bool
	Until time.Duration
	// Direct reports that there was no broker. A letter counts as published when it has its effect.
	Direct bool
}

// file collects everything that is known of a run.
type file struct {
	options Options
	letters map[string]*known // by id
	events  []letter.Event
	taken   []letter.Entry // by the broker, in order
	effects []*letter.Effect
	found   []rule.Violation
}

// known collects everything that is known of a letter.
type known struct {
	said     []letter.Letter // committed to the outbox; one entry
	taken    []letter.Entry
	refusals int
	waiting  int
	effects  map[string]int          // by consumer
	inbox    map[string]bool         // by consumer
	dead     map[string]*letter.Dead // by consumer; "" for the outbox
	causes   int                     // number of letters that answer it
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
	// The workers themselves lock in an order that cannot deadlock.
	if state.Deadlocks > 0 {
		f.found = append(f.found, rule.Violation{Rule: rule.NoDeadlock, Detail: fmt.Sprintf("there were %d", state.Deadlocks)})
	}
}

// consumers returns the consumers of the run.
func (f *file) consumers() []letter.Consumer {
	if f.options.Direct {
		return letter.Direct()
	}
	return letter.Consumers()
}

// takeEffects fills in what the broker took, for a run without a broker. A letter counts as taken
// when a consumer handled it, in that order, or when it became a dead letter of a consumer.
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
