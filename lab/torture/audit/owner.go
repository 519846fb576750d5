package audit

import (
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// settled is the time after a fault in which every process notices what happened to it.
const settled = time.Second

// checkOwners checks that no process begins to run an operation while another process runs it. The
// promise holds while nothing is broken, and for processes with a direct session. A process behind
// a pooler has a lease instead, and a fault may have ended the lease.
func (b *book) checkOwners(o *operation) {
	if o.row.Canceled { // the owner notices a cancellation with its next commit
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

// isGivenUp reports whether the process of the run had released the operation by then, for example
// to wait for a child. Its function may still be returning.
func (o *operation) isGivenUp(r *run, by time.Duration) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.Owner == 0 && m.By == r.op.Process() && r.begin < m.At && m.At < by+clocks
	})
}
