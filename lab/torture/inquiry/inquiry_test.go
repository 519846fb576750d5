package inquiry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// run is everything that is known of a run. It starts as a run in which every promise was kept.
type run struct {
	state   letter.State
	entries []letter.Entry
	events  []letter.Event
	options inquiry.Options
}

// The letters of a run: two of a key, an answer to the first, one that the broker refuses, and one
// that no consumer can handle.
var (
	first    = letter.Letter{ID: "first", Topic: letter.Orders, Key: "k", N: 1}
	second   = letter.Letter{ID: "second", Topic: letter.Orders, Key: "k", N: 2}
	answer   = letter.Letter{ID: "answer", Topic: letter.Bills, Key: "k", N: 1, Cause: "first"}
	unwanted = letter.Letter{ID: "unwanted", Topic: letter.Orders, Key: "u", N: 2, Fate: letter.Unwanted}
	poison   = letter.Letter{ID: "poison", Topic: letter.Orders, Key: "p", N: 2, Fate: letter.Poison}
)

func kept() *run {
	r := &run{}
	r.state.Said = append(r.state.Said, first, second, answer, unwanted, poison)
	effect := func(consumer string, l letter.Letter) {
		r.state.Effects = append(r.state.Effects, &letter.Effect{Consumer: consumer, ID: l.ID})
		r.state.Inbox = append(r.state.Inbox, &letter.Inbox{Consumer: consumer, ID: l.ID})
	}
	for _, l := range []letter.Letter{first, second} {
		effect("billing", l)
		effect("stock", l)
	}
	effect("mail", answer)
	for _, consumer := range []string{"billing", "stock"} {
		r.state.Dead = append(r.state.Dead, &letter.Dead{Consumer: consumer, Source: poison.Topic, ID: poison.ID, Key: poison.Key,
			Reason: "it fails", Payload: poison.Encode(), Attempts: inquiry.MaxAttempts})
	}
	r.state.Dead = append(r.state.Dead, &letter.Dead{Source: unwanted.Topic, ID: unwanted.ID, Key: unwanted.Key,
		Reason: "it is not wanted", Payload: unwanted.Encode(), Attempts: inquiry.MaxAttempts})
	for range inquiry.MaxAttempts {
		r.entries = append(r.entries, letter.Entry{Letter: unwanted})
	}
	for _, l := range []letter.Letter{first, second, poison, first, answer} { // one of them comes again
		r.entries = append(r.entries, letter.Entry{Taken: true, Letter: l})
	}
	r.tell("billing", letter.Answer{ID: "first", Outcome: history.Executed}, letter.Answer{ID: "second", Outcome: history.Replayed},
		letter.Answer{ID: "poison", Outcome: history.Died}, letter.Answer{ID: "first", Forged: true, Outcome: history.Mismatch})
	return r
}

// tell adds outcomes of deliveries for a consumer.
func (r *run) tell(consumer string, answers ...letter.Answer) {
	op := history.NewOp(0, 0, uint32(len(r.events)+1))
	r.events = append(r.events, letter.Event{Kind: letter.KindTold, Op: op, Consumer: consumer, Answers: answers})
}

func (r *run) found(t *testing.T) (found []rule.Rule) {
	t.Helper()
	for _, v := range inquiry.Run(&r.state, r.entries, r.events, r.options).Violations {
		found = append(found, v.Rule)
		t.Logf("%s: %s: %s", v.Rule, v.Scope, v.Detail)
	}
	return found
}

func TestARunThatKeptEveryPromiseIsFoundRight(t *testing.T) {
	t.Parallel()
	if found := kept().found(t); len(found) > 0 {
		t.Errorf("it is found that not: %q", found)
	}
}

func TestEveryBrokenPromiseIsFoundOut(t *testing.T) {
	t.Parallel()
	ofDead := func(id, consumer string) func(*letter.Dead) bool {
		return func(d *letter.Dead) bool { return d.ID == id && d.Consumer == consumer }
	}
	ofEffect := func(id, consumer string) func(*letter.Effect) bool {
		return func(e *letter.Effect) bool { return e.ID == id && e.Consumer == consumer }
	}
	dead := func(r *run, id, consumer string) *letter.Dead {
		return r.state.Dead[slices.IndexFunc(r.state.Dead, ofDead(id, consumer))]
	}
	bury := func(r *run, id, consumer string) {
		r.state.Dead = slices.DeleteFunc(r.state.Dead, ofDead(id, consumer))
	}
	for name, test := range map[string]struct {
		spoil func(*run)
		want  rule.Rule
	}{
		"a letter is lost": {func(r *run) {
			r.state.Said = append(r.state.Said, letter.Letter{ID: "lost", Topic: letter.Orders})
		}, rule.Published},
		"a letter stays in the outbox": {func(r *run) { r.state.Waiting = append(r.state.Waiting, &letter.ID{ID: "first"}) }, rule.Published},
		"an unwanted letter is lost":   {func(r *run) { bury(r, "unwanted", "") }, rule.Published},
		"a letter was rolled back": {func(r *run) {
			r.entries = append(r.entries, letter.Entry{Taken: true, Letter: letter.Letter{ID: "no", Topic: letter.Orders}})
		}, rule.Said},
		"a header is lost":                      {func(r *run) { r.entries[len(r.entries)-1].Altered = true }, rule.AsAdded},
		"two of a key are published in reverse": {func(r *run) { n := len(r.entries); r.entries[n-5].Letter, r.entries[n-4].Letter = second, first }, rule.PublishOrder},
		"a letter dies too soon":                {func(r *run) { dead(r, "unwanted", "").Attempts-- }, rule.Dead},
		"a letter dies that was not refused":    {func(r *run) { r.entries = r.entries[1:] }, rule.Dead},
		"a dead letter has lost its payload":    {func(r *run) { dead(r, "poison", "stock").Payload = nil }, rule.Dead},
		"a dead letter has no reason":           {func(r *run) { dead(r, "unwanted", "").Reason = "" }, rule.Dead},
		"an effect is there twice": {func(r *run) {
			r.state.Effects = append(r.state.Effects, &letter.Effect{Consumer: "stock", ID: "first"})
		}, rule.EffectOnce},
		"an effect is missing": {func(r *run) { r.state.Effects = slices.DeleteFunc(r.state.Effects, ofEffect("second", "stock")) }, rule.Effect},
		"poison is lost":       {func(r *run) { bury(r, "poison", "stock") }, rule.Effect},
		"poison is handled": {func(r *run) {
			r.state.Effects = append(r.state.Effects, &letter.Effect{Consumer: "stock", ID: "poison"})
		}, rule.EffectOnce},
		"an effect is not remembered": {func(r *run) {
			r.state.Inbox = slices.DeleteFunc(r.state.Inbox, func(i *letter.Inbox) bool { return i.ID == "answer" })
		}, rule.Effect},
		"an answer is there twice": {func(r *run) {
			twice := answer
			twice.ID = "twice"
			r.state.Said = append(r.state.Said, twice)
		}, rule.Caused},
		"an answer is missing": {func(r *run) {
			r.state.Said = slices.DeleteFunc(r.state.Said, func(l letter.Letter) bool { return l.ID == "answer" })
		}, rule.Caused},
		"two of a key are handled in reverse": {func(r *run) {
			effects := r.state.Effects
			a, b := slices.IndexFunc(effects, ofEffect("first", "billing")), slices.IndexFunc(effects, ofEffect("second", "billing"))
			effects[a], effects[b] = effects[b], effects[a]
		}, rule.EffectOrder},
		"another payload is a duplicate": {func(r *run) { r.tell("billing", letter.Answer{ID: "first", Forged: true, Outcome: history.Replayed}) }, rule.Forged},
		"the same payload is another":    {func(r *run) { r.tell("billing", letter.Answer{ID: "first", Outcome: history.Mismatch}) }, rule.Forged},
		"done without an effect":         {func(r *run) { r.tell("mail", letter.Answer{ID: "second", Outcome: history.Executed}) }, rule.DoneTold},
		"dead without a dead letter":     {func(r *run) { r.tell("stock", letter.Answer{ID: "first", Outcome: history.Died}) }, rule.Dead},
		"a deadlock":                     {func(r *run) { r.state.Deadlocks = 1 }, rule.NoDeadlock},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := kept()
			test.spoil(r)
			if found := r.found(t); !slices.Contains(found, test.want) {
				t.Errorf("it is found that %q, and not that %q", found, test.want)
			}
		})
	}
}

// A late letter is a violation in a run without faults, unless the machine was equally slow.
func TestALetterThatIsLateIsFoundOutUnlessTheMachineIsSlow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		quiet     bool
		published time.Duration
		probe     time.Duration
		delay     time.Duration
		late      bool
	}{
		{true, 2 * time.Second, 0, 0, false},
		{true, 4 * time.Second, 0, 0, true},
		{true, 4 * time.Second, time.Second, 0, false},
		{true, 4 * time.Second, 0, 3 * time.Second, false},
		{true, 2 * time.Second, 0, 3 * time.Second, true}, // before it was due
		{false, 4 * time.Second, 0, 0, false},
	} {
		r := kept()
		r.options = inquiry.Options{Quiet: test.quiet, Until: time.Minute}
		for i := range r.entries {
			r.entries[i].At = test.published
		}
		r.events = append(r.events, letter.Event{Kind: letter.KindSay, IDs: []string{"second"}, Took: test.delay},
			letter.Event{Kind: letter.KindSaid, Outcome: history.Executed, IDs: []string{"second"}, Took: test.delay},
			letter.Event{Kind: letter.KindProbe, At: time.Second + test.probe, Took: test.probe})
		if found := r.found(t); slices.Contains(found, rule.InTime) != test.late {
			t.Errorf("%+v: found %q", test, found)
		}
	}
}
