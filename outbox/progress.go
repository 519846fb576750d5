package outbox

import (
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// progress records which positions of a stream were read. The position of a message is its sequence
// number.
//
// Transactions do not commit in the order of the positions of their messages. A transaction may
// commit a message whose position is far below those of messages that were published long ago. So
// if the relay passes a position without finding a message, the position is in a gap. Every read
// covers all gaps and all positions beyond top, in one statement with one snapshot. This keeps the
// order of a key. Suppose that a transaction waited for a row lock and then added a message. It did
// so after the holder of the lock had committed. So a snapshot that contains its message also
// contains the message of the holder, at a lower position: in a gap or beyond top.
//
// A gap ends when no transaction is left that can commit a message in it. The relay reads no other
// positions below top. Reading them could be slow: while a transaction has an old snapshot, the
// index keeps the entries of all deleted rows.
type progress struct {
	top        int64 // every position up to top was read, or is in a gap
	gaps       []gap // sorted by position
	nextList   time.Time
	prepared   map[string]bool // the names of prepared transactions in the last list of writers
	nextReread time.Time
}

// gap is a range of positions without a message so far.
type gap struct {
	low, high int64
	writers   writers // nil until the writers are listed for the first time
}

const (
	listPause = 50 * time.Millisecond // between two lists of the writers, while there are gaps
	maxGaps   = 1024

	// A stream is reread from the beginning at intervals, because an administrator may have changed or
	// inserted rows anywhere.
	rereadPause = 30 * time.Second
	rereadShare = 50 // rereads take at most a fiftieth of the time
)

// next returns the next read. If there are gaps, next also returns, at most once per listPause, a
// query for the current writers, which must run before the read in the same transaction.
func (r *progress) next(now time.Time) (*db.ListWriters, *db.ReadMessages) {
	var list *db.ListWriters
	if len(r.gaps) > 0 && !now.Before(r.nextList) {
		list = &db.ListWriters{}
		r.nextList = now.Add(listPause)
	}
	if !now.Before(r.nextReread) {
		return list, &db.ReadMessages{}
	}
	return list, r.from(r.top)
}

// note stores the results of the statements that next has returned.
func (r *progress) note(list *db.ListWriters, read *db.ReadMessages, took time.Duration, now time.Time) {
	end := int64(1<<63 - 1) // the last position that the read covers
	if read.IsFull() {
		end = read.Seqs[len(read.Seqs)-1]
	}
	if read.After == 0 {
		r.nextReread = now.Add(max(rereadPause, rereadShare*took))
	}
	if list != nil {
		r.updateWriters(list)
	}
	r.close(read.Seqs, end)
	for _, seq := range read.Seqs {
		if seq > r.top {
			if seq > r.top+1 {
				r.gaps = append(r.gaps, gap{low: r.top + 1, high: seq - 1})
			}
			r.top = seq
		}
	}
	r.merge()
}

// updateWriters updates the writers of the gaps from a new list of writers.
func (r *progress) updateWriters(list *db.ListWriters) {
	listed, prepared := make(writers, len(list.Rows)), map[string]bool{}
	var newlyPrepared []string
	for _, w := range list.Rows {
		listed[w.Name] = true
		if w.Prepared {
			prepared[w.Name] = true
			if !r.prepared[w.Name] {
				newlyPrepared = append(newlyPrepared, w.Name)
			}
		}
	}
	r.prepared = prepared
	for i := range r.gaps {
		if g := &r.gaps[i]; g.writers == nil {
			g.writers = listed
		} else {
			g.writers.keep(listed, newlyPrepared)
		}
	}
}

// close removes the positions in seen from the gaps. It also drops each gap that the read has
// covered and whose writers were gone before the read: the snapshot of the read contains all that
// these writers have committed.
func (r *progress) close(seen []int64, end int64) {
	left := make([]gap, 0, len(r.gaps)+1)
	for _, g := range r.gaps {
		if g.writers.areGone() && end >= g.high {
			continue
		}
		first, _ := slices.BinarySearch(seen, g.low)
		for _, seq := range seen[first:] {
			if seq > g.high {
				break
			}
			if seq > g.low {
				left = append(left, gap{g.low, seq - 1, g.writers})
			}
			g.low = seq + 1
		}
		if g.low <= g.high {
			left = append(left, g)
		}
	}
	r.gaps = left
}

// merge replaces the older half of the gaps by one gap if there are more than maxGaps. The next
// list of writers sets the writers of that gap.
func (r *progress) merge() {
	if len(r.gaps) > maxGaps {
		half := len(r.gaps) / 2
		r.gaps = slices.Insert(r.gaps[half:], 0, gap{low: r.gaps[0].low, high: r.gaps[half-1].high})
	}
}

// from returns a read of all positions after the given one, and of the gaps before it.
func (r *progress) from(position int64) *db.ReadMessages {
	read := &db.ReadMessages{After: position}
	for _, g := range r.gaps {
		if g.low <= position {
			read.Lows, read.Highs = append(read.Lows, g.low), append(read.Highs, min(g.high, position))
		}
	}
	return read
}

// writers is the set of transactions that can still commit a message in a gap. They are the
// transactions that hold the lock of an INSERT (ROW EXCLUSIVE) on idem.outbox when the relay lists
// them after it has found the gap. The set is complete:
//
//   - An INSERT locks the table before nextval draws its position. A position in a gap is lower
//     than a position that was read, so it was drawn before, and its transaction already has the
//     lock. Transaction IDs could not serve as the set: heap_insert assigns them after nextval.
//   - A transaction leaves the ProcArray before it releases its locks, also at COMMIT PREPARED. So
//     a snapshot that is taken after the release contains its rows. ROLLBACK TO SAVEPOINT may
//     release the lock earlier, but it also removes the rows.
//   - pg_locks copies fast-path locks before the shared lock table. A lock moves only from the fast
//     path to the shared table, so pg_locks misses none.
//   - PREPARE TRANSACTION keeps the lock but may change the name of the transaction in the list. So
//     a newly prepared transaction may be any transaction that has disappeared from the list.
//
// A long transaction that never wrote to the outbox is not in the set, so it keeps no gap open.
// Gaps whose writers were first listed together share one map.
type writers map[string]bool

// areGone reports whether the writers were listed and none is left.
func (w writers) areGone() bool { return w != nil && len(w) == 0 }

// keep removes the writers that are not in listed. A removed writer may be one of the newly
// prepared transactions, so keep then adds all of these. Gaps may share w: a second call with the
// same list changes nothing.
func (w writers) keep(listed writers, newlyPrepared []string) {
	before := len(w)
	for name := range w {
		if !listed[name] {
			delete(w, name)
		}
	}
	if len(w) == before {
		return
	}
	for _, name := range newlyPrepared {
		w[name] = true
	}
}
