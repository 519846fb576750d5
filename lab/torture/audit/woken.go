package audit

import (
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// noticed is how long a lost answer to a claim may leave an operation idle: a process looks every five seconds for operations
// that it owns and does not work on. On a slow machine both the look and the start of the run take longer, so twice the longest
// way from a claim to its run is added.
const noticed = 7 * time.Second

// checkWoken checks the operations that were claimed while only the answers to claims were lost. Each must be worked on or be
// claimed again. An idle operation counts as a violation only if its owner, or another process after the owner has died, began
// another run after the limit: processes that the machine does not run prove nothing.
func (b *book) checkWoken() {
	var longest time.Duration
	b.eachTaking(func(_ *operation, m *journal.Move, run, _ time.Duration) {
		if run > 0 {
			longest = max(longest, run-m.At)
		}
	})
	limit := noticed + 2*longest
	b.eachTaking(func(o *operation, m *journal.Move, run, until time.Duration) {
		due := m.At + limit
		begun := b.begun[m.By]
		if b.alive[m.By] < due {
			for _, at := range b.begun {
				begun = max(begun, at)
			}
		}
		if run == 0 && until > due && begun > due {
			b.violates(o, rule.Woken, "%v claimed it at %v and did not work on it until %v, though other work was begun then",
				process(m.By), m.At-b.options.Start, until-b.options.Start)
		}
	})
}

// eachTaking calls visit for each taking up while nothing was broken, by a process that was there, with when its run was begun, 0 if it
// was not, and until when nothing else has become of it. A server may take an operation up for a process that was killed since it has
// asked for that: it is for others to find out that this one is gone, which they do when its lease is over, if it shows itself by one, and
// when a suspect has had its rest. An operation that no Worker knows is for callers, who need not come: it is judged as long as its owner is seen, because
// a process that has lost its number releases nothing. So is a suspect, which waits for the turn of other suspects.
func (b *book) eachTaking(visit func(o *operation, m *journal.Move, run, until time.Duration)) {
	seen := b.ownersSeen()
	for _, o := range b.operations {
		for i, m := range o.moves {
			if m.Owner == 0 || m.Attempts == 0 || m.At < b.options.Calm || m.At > b.options.Stop || b.alive[m.By] < m.At {
				continue
			}
			until := b.options.Stop
			if i+1 < len(o.moves) {
				until = min(until, o.moves[i+1].At)
			}
			if gone := b.alive[m.By]; gone < until && (m.Pooled || o.plan.WalkIn) {
				until = gone
			}
			if o.plan.WalkIn || m.Rest > 0 {
				until = min(until, seen[m.Owner])
			}
			var begun time.Duration
			for _, r := range o.runs {
				if m.At-clocks < r.begin && r.begin < until && r.op.Process() == m.By {
					begun = r.begin
				}
			}
			visit(o, m, begun, until)
		}
	}
}

// ownersSeen returns when each owner has taken something up for the last time.
func (b *book) ownersSeen() map[int]time.Duration {
	seen := map[int]time.Duration{}
	for _, o := range b.operations {
		for _, m := range o.moves {
			if m.Owner != 0 {
				seen[m.Owner] = max(seen[m.Owner], m.At)
			}
		}
	}
	return seen
}
