package outbox

import (
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store"
)

func TestWhatDestinationsHaveLeftIsReadAgainAtOnceIfTheyTakeMuchOfIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for what, c := range map[string]struct {
		whole, bare, taken int
		atOnce             bool
		wide               int
	}{
		"one takes all":                    {1000, 0, 1000, true, 1},
		"one takes its share":              {1000, 0, 128, false, 1},
		"it is all of one that is busy":    {0, 1000, 0, false, 4},
		"it is mostly of one that is":      {300, 700, 300, true, 4},
		"it is all in hand":                {0, 0, 0, true, 4},
		"few are of one that takes them":   {100, 900, 100, false, 4},
		"many are, and more than it takes": {600, 400, 128, false, 1},
	} {
		d := newDestinations(PublisherFunc(nil), &memory{}, nil)
		d.wide = 2
		b := &batch{readAgain: 1000}
		for i := range c.whole + c.bare {
			b.messages = append(b.messages, store.Queued{Bare: i >= c.whole})
		}
		if d.readAgain(b, c.taken, now); d.backDue.After(now) == c.atOnce || d.isTurn != c.atOnce || d.wide != c.wide {
			t.Errorf("%s: a pause of %v, others first is %v, %d times as much", what, d.backDue.Sub(now), d.isTurn, d.wide)
		}
	}
}

func TestDestinationThatIsQuickIsGivenMoreAtATime(t *testing.T) {
	t.Parallel()
	to, c := &destination{}, &RelayConfig{BatchSize: 1000}
	for i, step := range []struct {
		places int
		took   time.Duration
		want   int
	}{
		{10, 0, 128}, {128, readAgain + 1, 128}, {128, readAgain, 256}, {256, 0, 512}, {512, 0, 1000}, {1000, 0, 1000}, {20, readAgain, 1000}, {1000, readAgain + 1, 128},
	} {
		if to.fit(delivery{places: make([]int64, step.places), took: step.took}, c); to.share() != step.want {
			t.Errorf("step %d: %d", i, to.share())
		}
	}
}

// A read of a thousand that are all refused by name is followed by a larger one, however slow the machine is.
func TestMoreIsReadAtATimeWhileAllIsRefused(t *testing.T) {
	t.Parallel()
	d := newDestinations(PublisherFunc(nil), &memory{}, nil)
	l := lookout{clerk: clerk{config: &RelayConfig{BatchSize: 1000}}, share: store.Stream{Of: 1}, to: d}
	refused := outcome{failed: make([]failure, 1000)}
	for i, step := range []struct {
		did  outcome
		want int
	}{
		{refused, 2000}, {refused, 4000}, {refused, 8000}, {refused, 16_000}, {refused, 32_000}, {refused, 32_000},
		{outcome{failed: refused.failed, published: []int64{1}}, 1000}, {refused, 2000},
		{outcome{failed: refused.failed, isLeft: true}, 1000}, {refused, 2000},
		{outcome{failed: refused.failed, err: errHung}, 1000}, {refused, 2000},
		{outcome{}, 1000},
	} {
		if d.widen(&step.did); l.room(false) != step.want {
			t.Errorf("step %d: %d are read", i, l.room(false))
		}
	}
}

// A destination that is away has a pause also if one of the messages that have failed was found to be bad before.
func TestDestinationThatIsAwayHasAPauseAlthoughAMessageThatWasFoundHasFailedAsWell(t *testing.T) {
	t.Parallel()
	c := newCaller(t, nil)
	for what, step := range map[string]struct {
		did   outcome
		pause bool
	}{
		"all have failed":                      {outcome{err: errHung}, true},
		"and one that was found":               {outcome{err: errHung, failed: []failure{{alone: &lone{}}}}, true},
		"one was named":                        {outcome{err: errHung, failed: []failure{{}}}, false},
		"one was published, and one was found": {outcome{err: errHung, published: []int64{1}, failed: []failure{{alone: &lone{}}}}, false},
		"one that was found has failed":        {outcome{failed: []failure{{alone: &lone{}}}}, false},
	} {
		d := newDestinations(PublisherFunc(nil), &memory{}, nil)
		to := &destination{caller: *c, pauses: pausesOf(c.config)}
		if pause := d.end(delivery{to: to, did: &step.did}, c.config); (pause > 0) != step.pause {
			t.Errorf("%s: a pause of %v", what, pause)
		}
	}
}

// What was looked for may be gone, because a person has removed it or it is held back.
func TestTrialIsOverOnceItsDestinationHasNothingLeft(t *testing.T) {
	t.Parallel()
	for what, publisher := range map[string]Publisher{"one destination": PublisherFunc(nil), "a Divider": Route(nil)} {
		c := newCaller(t, nil)
		d := newDestinations(publisher, &memory{}, func(name string) *destination { return &destination{name: name, caller: *c} })
		to := d.get("")
		to.caller.trial.on, to.left = true, 7
		if d.take(t.Context(), &batch{}); !d.isWide() {
			t.Errorf("%s: the trial is over while something is left", what)
		}
		if free, place := d.back(time.Now()); len(free) != 1 || place != 7 {
			t.Errorf("%s: %d are free, from %d on", what, len(free), place)
		}
		if d.take(t.Context(), &batch{}); d.isWide() {
			t.Errorf("%s: the trial goes on", what)
		}
	}
}
