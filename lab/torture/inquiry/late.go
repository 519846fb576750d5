package inquiry

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// soon is for how long a message may wait behind its commit while the broker is there, on a machine that takes no time for nothing.
const soon = 2 * time.Second

// idle is by how much more than the longest probe a message may wait besides: a probe is one round trip to each, a message some.
const idle = 4

// checkLate checks that the letters were published soon behind their commit, or behind the moment at which they were due, and none before that,
// as long as nothing was broken. Where the machine is slow, a probe was as well.
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
			limit := soon + idle*f.slowest(e.At, published)
			if late := published - e.At - e.Took; late > limit {
				f.violates(rule.InTime, id, "it was committed at %v, and published %v later or not at all; the machine allows for %v",
					e.At-f.options.Start, late, limit)
			}
		}
	}
}

// checkEarly checks of letters that are about to be put into the outbox that none was published before it was due.
func (f *file) checkEarly(e letter.Event) {
	for _, id := range e.IDs {
		for _, taken := range f.of(id).taken {
			if after := taken.At - e.At; after < e.Took {
				f.violates(rule.InTime, id, "it was held back for %v, and published after %v", e.Took, after)
			}
		}
	}
}

// slowest is the longest probe of a time.
func (f *file) slowest(from, until time.Duration) (longest time.Duration) {
	for _, e := range f.events {
		if e.Kind == letter.KindProbe && from <= e.At && e.At-e.Took <= until {
			longest = max(longest, e.Took)
		}
	}
	return longest
}
