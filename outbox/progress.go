package outbox

import (
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// progress is the read position of a stream.
//
// Transactions do not commit in the order of their positions: one may commit a message far below
// others that were published long ago. So a position that the relay has passed without a message is
// a gap. Every read covers all gaps and everything beyond top, in one statement with one snapshot.
// Suppose that a transaction waited for a row lock and then added a message. It did so after the
// commit that released the lock. So a snapshot with its message also has the earlier message of the
// key, at a lower position: in a gap or beyond top.
//
// A gap ends when none of its writers is left. The relay reads nothing else below top, because
// index entries of deleted rows stay there as long as some transaction has an old snapshot.
type progress struct {
	top        int64 // every position up to here was read, or is in a gap
	gaps       []gap // in order
	nextList   time.Time
	prepared   map[string]bool // the prepared transactions of the last list
	nextReread time.Time
}

// gap is a range of positions without a message so far.
type gap struct {
	low, high int64
	writers   writers // nil until the first list
}

const (
	listPause = 50 * time.Millisecond // between two lists of writers, while there are gaps
	maxGaps   = 1024

	// A stream is reread from the beginning now and then: an administrator may have changed or
	// inserted rows anywhere.
	rereadPause = 30 * time.Second
	rereadShare = 50 // rereads take at most a fiftieth of the time
)

// next returns the next read, and the list of writers that precedes the read in its transaction, or
// nil.
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

// note stores the results of next.
func (r *progress) note(list *db.ListWriters, read *db.ReadMessages, took time.Duration, now time.Time) {
	end := int64(1<<63 - 1) // the read covers positions up to here
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

// updateWriters applies a list of writers to the gaps.
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

// close removes the positions that were read from the gaps. It drops a gap whose writers were gone
// before the read, if the read has covered the gap: its snapshot has all that they committed.
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

// merge merges the older half of the gaps if there are too many. The writers of the merged gap are
// listed again.
func (r *progress) merge() {
	if len(r.gaps) > maxGaps {
		half := len(r.gaps) / 2
		r.gaps = slices.Insert(r.gaps[half:], 0, gap{low: r.gaps[0].low, high: r.gaps[half-1].high})
	}
}

// from returns a read of everything beyond a position and of the gaps below it.
func (r *progress) from(position int64) *db.ReadMessages {
	read := &db.ReadMessages{After: position}
	for _, g := range r.gaps {
		if g.low <= position {
			read.Lows, read.Highs = append(read.Lows, g.low), append(read.Highs, min(g.high, position))
		}
	}
	return read
}

// writers are the transactions that can have an uncommitted message in a gap: those that hold the
// lock of an INSERT (ROW EXCLUSIVE) on idem.outbox when the relay finds the gap. The set is
// complete:
//
//   - An INSERT locks the table before nextval draws the position. A gap is below a message that
//     was read, so the transactions of its positions hold the lock by then. Transaction ids would
//     not do: heap_insert assigns them after nextval.
//   - A transaction leaves the ProcArray before it releases its locks, also at COMMIT PREPARED. So
//     a snapshot that is taken after the release has its rows. ROLLBACK TO SAVEPOINT may release
//     the lock, and removes the rows.
//   - pg_locks copies fast-path locks before the shared table, and a lock moves only in that
//     direction. So none is missed.
//   - PREPARE TRANSACTION keeps the lock but may change its name. So each newly prepared
//     transaction with a new name may be any one that has left the list.
//
// A long transaction that never wrote to the outbox is not in the set. Gaps of one list share one
// value.
type writers map[string]bool

// areGone reports whether the writers were listed and none is left.
func (w writers) areGone() bool { return w != nil && len(w) == 0 }

// keep drops the writers that are not listed. A dropped writer may be one of the newly prepared
// transactions, so keep adds these. A second call, for another gap of the same list, changes
// nothing.
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
