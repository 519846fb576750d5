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

// noticed is how long a claim whose answer was lost may leave an operation idle. A process looks
// every five seconds for operations that it owns and does not run. On a slow machine both that look
// and the start of a run take longer, so checkWoken adds twice the longest observed time from a
// claim to its run.
const noticed = 7 * time.Second

// checkWoken checks that an operation which was claimed is run, or claimed again, within a limit.
// It looks at the period in which only the answers to claims were lost.
//
// An idle operation is a violation only if its owner began another run after the limit, or any
// other process did if the owner has died. Otherwise the machine may not have scheduled the
// processes.
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

// eachTaking calls visit for each claim in the calm period by a process that was alive. It passes
// the time at which that process began to run the operation, 0 if it did not, and the time until
// which the operation could stay with the process.
//
// That time ends with the next move of the operation and in these cases:
//
//   - The process died and is behind a pooler. Other processes wait until its lease has expired.
//   - The process died and no Worker knows the operation (WalkIn). Only a caller can take it over,
//     and there may be none.
//   - The owner was not seen any more, and the operation is a WalkIn or is delayed after several
//     deaths (Rest > 0). A process that lost its owner number releases nothing, and a delayed
//     operation waits for its turn.
func (b *book) eachTaking(visit func(o *operation, m *journal.Move, run, until time.Duration)) {
	seen := b.ownersSeen()
	for _, o := range b.operations {
		for i, m := range o.moves {
			// The server may execute a claim after the process that sent it was killed. Such a
			// claim is skipped: other processes find out that the owner is gone.
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

// ownersSeen returns the time of the last claim of each owner.
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
