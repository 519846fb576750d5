package inquiry

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// soon is how long a message may wait after its commit on an infinitely fast machine, while the
// broker is available.
const soon = 2 * time.Second

// idle is how many of the longest probes a message may wait in addition. A probe is one round trip
// to the database and the broker; a message takes several.
const idle = 4

// checkLate checks that each letter was published soon after its commit or after its delay, and not
// before its delay. The limit grows with the longest probe in that time, because a slow machine
// delays both.
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

// slowest returns the longest probe between the two times.
func (f *file) slowest(from, until time.Duration) (longest time.Duration) {
	for _, e := range f.events {
		if e.Kind == letter.KindProbe && from <= e.At && e.At-e.Took <= until {
			longest = max(longest, e.Took)
		}
	}
	return longest
}
