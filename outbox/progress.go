package outbox

import (
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// progress is how far a stream has been read. Positions are not drawn in the order of commits: a transaction may commit a message
// at a position far below others that were published long ago. So a position that was passed without a message is a gap. The
// relay reads all gaps again in every read, together with what is beyond top. A read is one statement with one snapshot. A
// transaction that waited for a row lock adds its message after the commit that released the lock, so a snapshot that shows
// its message shows the earlier one of the key as well, at a lower position: in a gap or beyond top. The relay does not read
// below top otherwise: index entries of deleted rows stay there for as long as some transaction has an old snapshot.
//
// A gap is forgotten when none of its writers is left: see writers.
type progress struct {
	top      int64 // every position up to here was read, or is in a gap
	gaps     []gap // in order
	listDue  time.Time
	prepared map[string]bool // the prepared transactions of the last list
	wholeDue time.Time
}

// gap is a range of positions without a message so far.
type gap struct {
	low, high int64
	writers   writers // nil until they were listed
}

const (
	listPause = 50 * time.Millisecond // between two lists of writers, while there are gaps
	maxGaps   = 1024

	// Everything is read again from the beginning now and then: rows may have been changed or inserted by hand, at any place.
	wholePause = 30 * time.Second
	wholeShare = 50 // of the time, for that
)

// next returns where to read, and what is to be asked before that, or nil.
func (r *progress) next(now time.Time) (*db.ListWriters, *db.ReadMessages) {
	var list *db.ListWriters
	if len(r.gaps) > 0 && !now.Before(r.listDue) {
		list = &db.ListWriters{}
		r.listDue = now.Add(listPause)
	}
	if !now.Before(r.wholeDue) {
		return list, &db.ReadMessages{}
	}
	return list, r.from(r.top)
}

// note notes what was read. The list, if there is one, is from before that.
func (r *progress) note(list *db.ListWriters, read *db.ReadMessages, took time.Duration, now time.Time) {
	verified := int64(1<<63 - 1) // up to where it has read
	if read.IsFull() {
		verified = read.Seqs[len(read.Seqs)-1]
	}
	if read.After == 0 {
		r.wholeDue = now.Add(max(wholePause, wholeShare*took))
	}
	if list != nil {
		r.watch(list)
	}
	r.close(read.Seqs, verified)
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

// watch takes a list of writers to the gaps.
func (r *progress) watch(list *db.ListWriters) {
	listed, prepared := make(writers, len(list.Rows)), map[string]bool{}
	var fresh []string
	for _, w := range list.Rows {
		listed[w.Name] = true
		if w.Prepared {
			prepared[w.Name] = true
			if !r.prepared[w.Name] {
				fresh = append(fresh, w.Name)
			}
		}
	}
	r.prepared = prepared
	for i := range r.gaps {
		if g := &r.gaps[i]; g.writers == nil {
			g.writers = listed
		} else {
			g.writers.keep(listed, fresh)
		}
	}
}

// close takes out of the gaps what was seen in them, and forgets those in which nothing is to come.
func (r *progress) close(seen []int64, verified int64) {
	left := make([]gap, 0, len(r.gaps)+1)
	for _, g := range r.gaps {
		if g.writers.over() && verified >= g.high {
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

// merge makes one gap of two if there are too many. The writers of both are listed again.
func (r *progress) merge() {
	if len(r.gaps) <= maxGaps {
		return
	}
	merged := r.gaps[:0]
	for i := 0; i < len(r.gaps); i += 2 {
		g := r.gaps[i]
		if i+1 < len(r.gaps) {
			g = gap{low: g.low, high: r.gaps[i+1].high}
		}
		merged = append(merged, g)
	}
	r.gaps = merged
}

// from returns what reads everything beyond a position again, and the gaps below it.
func (r *progress) from(position int64) *db.ReadMessages {
	read := &db.ReadMessages{After: position}
	for _, g := range r.gaps {
		if g.low <= position {
			read.Lows, read.Highs = append(read.Lows, g.low), append(read.Highs, min(g.high, position))
		}
	}
	return read
}
