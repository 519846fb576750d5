package inquiry_test

import (
	"path/filepath"
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
	rows    []letter.Row
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
	for _, l := range []letter.Letter{first, second, answer, unwanted, poison} {
		r.rows = append(r.rows, letter.Row{Said: &letter.Said{Letter: l}})
	}
	place := int64(0)
	effect := func(consumer string, l letter.Letter) {
		place++
		r.rows = append(r.rows, letter.Row{Effect: &letter.Effect{Consumer: consumer, ID: l.ID, Place: place}},
			letter.Row{Inbox: &letter.Inbox{Consumer: consumer, Source: l.Topic, ID: l.ID}})
	}
	for _, l := range []letter.Letter{first, second} {
		effect("billing", l)
		effect("stock", l)
	}
	effect("mail", answer)
	for _, consumer := range []string{"billing", "stock"} {
		r.rows = append(r.rows, letter.Row{Dead: &letter.Dead{Side: "inbox", Consumer: consumer, Source: poison.Topic, ID: poison.ID, Key: poison.Key,
			Reason: "it fails", Payload: poison.Encode(), Attempts: inquiry.MaxAttempts}})
	}
	r.rows = append(r.rows, letter.Row{Dead: &letter.Dead{Side: "outbox", Source: unwanted.Topic, ID: unwanted.ID, Key: unwanted.Key,
		Reason: "it is not wanted", Payload: unwanted.Encode(), Attempts: inquiry.MaxAttempts}})
	for range inquiry.MaxAttempts {
		r.entries = append(r.entries, letter.Entry{Letter: unwanted})
	}
	for n, l := range []letter.Letter{first, second, poison, first, answer} { // one of them comes again
		r.entries = append(r.entries, letter.Entry{Taken: true, Position: n + 1, Letter: l})
	}
	r.tell("billing", letter.Answer{ID: "first", Outcome: history.Executed}, letter.Answer{ID: "second", Outcome: history.Replayed},
		letter.Answer{ID: "poison", Outcome: history.Died}, letter.Answer{ID: "first", Forged: true, Outcome: history.Mismatch})
	return r
}

// tell adds outcomes of deliveries for a consumer.
func (r *run) tell(consumer string, answers ...letter.Answer) {
	op := history.NewOp(0, 0, uint32(len(r.events)+1))
	r.events = append(r.events, letter.Event{Kind: letter.KindHandle, Op: op, Verb: "Batch " + consumer, Consumer: consumer, Letters: len(answers)},
		letter.Event{Kind: letter.KindTold, Op: op, Verb: "Batch " + consumer, Consumer: consumer, Answers: answers})
}

// without removes the rows that satisfy the test.
func (r *run) without(chosen func(letter.Row) bool) { r.rows = slices.DeleteFunc(r.rows, chosen) }

func (r *run) found(t *testing.T) (found []rule.Rule) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, each func(*history.Writer)) {
		w, err := history.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		each(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("state.jsonl", func(w *history.Writer) {
		for _, row := range r.rows {
			w.Append(row)
		}
	})
	write(inquiry.BooksFile, func(w *history.Writer) {
		for _, e := range r.entries {
			w.Append(e)
		}
	})
	write("worker-0-0000.jsonl", func(w *history.Writer) {
		for _, e := range r.events {
			w.Append(e)
		}
	})
	result, err := inquiry.Files(dir, r.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range result.Violations {
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
	ofDead := func(id, consumer string) func(letter.Row) bool {
		return func(r letter.Row) bool { return r.Dead != nil && r.Dead.ID == id && r.Dead.Consumer == consumer }
	}
	ofEffect := func(id, consumer string) func(letter.Row) bool {
		return func(r letter.Row) bool { return r.Effect != nil && r.Effect.ID == id && r.Effect.Consumer == consumer }
	}
	dead := func(r *run, id, consumer string) *letter.Dead {
		return r.rows[slices.IndexFunc(r.rows, ofDead(id, consumer))].Dead
	}
	for name, test := range map[string]struct {
		spoil func(*run)
		want  rule.Rule
	}{
		"a letter is lost": {func(r *run) {
			r.rows = append(r.rows, letter.Row{Said: &letter.Said{Letter: letter.Letter{ID: "lost", Topic: letter.Orders}}})
		}, rule.Published},
		"a letter stays in the outbox": {func(r *run) { r.rows = append(r.rows, letter.Row{Waiting: &letter.Waiting{ID: "first"}}) }, rule.Published},
		"an unwanted letter is lost":   {func(r *run) { r.without(ofDead("unwanted", "")) }, rule.Published},
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
			r.rows = append(r.rows, letter.Row{Effect: &letter.Effect{Consumer: "stock", ID: "first", Place: 99}})
		}, rule.EffectOnce},
		"an effect is missing": {func(r *run) { r.without(ofEffect("second", "stock")) }, rule.Effect},
		"poison is lost":       {func(r *run) { r.without(ofDead("poison", "stock")) }, rule.Effect},
		"poison is handled": {func(r *run) {
			r.rows = append(r.rows, letter.Row{Effect: &letter.Effect{Consumer: "stock", ID: "poison", Place: 99}})
		}, rule.EffectOnce},
		"an effect is not remembered": {func(r *run) {
			r.without(func(row letter.Row) bool { return row.Inbox != nil && row.Inbox.ID == "answer" })
		}, rule.Effect},
		"an answer is there twice": {func(r *run) {
			twice := answer
			twice.ID = "twice"
			r.rows = append(r.rows, letter.Row{Said: &letter.Said{Letter: twice}})
		}, rule.Caused},
		"an answer is missing": {func(r *run) {
			r.without(func(row letter.Row) bool { return row.Said != nil && row.Said.Letter.ID == "answer" })
		}, rule.Caused},
		"two of a key are handled in reverse": {func(r *run) {
			a, b := slices.IndexFunc(r.rows, ofEffect("first", "billing")), slices.IndexFunc(r.rows, ofEffect("second", "billing"))
			r.rows[a], r.rows[b] = r.rows[b], r.rows[a]
		}, rule.EffectOrder},
		"another payload is a duplicate": {func(r *run) { r.tell("billing", letter.Answer{ID: "first", Forged: true, Outcome: history.Replayed}) }, rule.Forged},
		"the same payload is another":    {func(r *run) { r.tell("billing", letter.Answer{ID: "first", Outcome: history.Mismatch}) }, rule.Forged},
		"done without an effect":         {func(r *run) { r.tell("mail", letter.Answer{ID: "second", Outcome: history.Executed}) }, rule.DoneTold},
		"dead without a dead letter":     {func(r *run) { r.tell("stock", letter.Answer{ID: "first", Outcome: history.Died}) }, rule.Dead},
		"a deadlock": {func(r *run) {
			r.rows = append(r.rows, letter.Row{Finding: &letter.Finding{Rule: string(rule.NoDeadlock)}})
		}, rule.NoDeadlock},
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
