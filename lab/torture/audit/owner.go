package audit

import (
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// settled is how long after the end of all faults every process has noticed what was done to it.
const settled = time.Second

// checkOwners checks that nobody begins to run an operation while another process does. That is promised where nothing is
// broken, of processes that can be seen: one behind a pooler has a lease, which may have been ended for it.
func (b *book) checkOwners(o *operation) {
	if o.row.Canceled { // whoever works on it finds out with its next commit
		return
	}
	for _, first := range o.runs {
		for _, second := range o.runs {
			if first.pooled || second.pooled || first.op.Process() == second.op.Process() || first.end == 0 {
				continue
			}
			calm := first.begin > b.options.Calm+settled
			if calm && first.begin < second.begin && second.begin < first.end && !o.isGivenUp(&first, second.begin) {
				b.violates(o, rule.OneWorker, "%v was begun while %v ran", second.op, first.op)
				return
			}
		}
	}
}

// isGivenUp reports whether the process of a run had given the operation up by then, as for a child, and its function had only to return.
func (o *operation) isGivenUp(r *run, by time.Duration) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.Owner == 0 && m.By == r.op.Process() && r.begin < m.At && m.At < by+clocks
	})
}
