package outbox

import (
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// reach is how far a stream has been read. Places are not taken in the order of commits: a transaction may commit a message
// with a place far behind others that have left long ago. So a place that was passed without a message in it is a gap, and is
// looked at again in every read, together with what is beyond top: then whatever is committed before something else is seen
// before it, too. What has left is not looked at again, because it stays in the way of the index for as long as somebody has
// an old snapshot. A gap is forgotten when every transaction is over that can have taken a place in it.
type reach struct {
	top      int64 // every place up to here has been dealt with, unless it is in a gap
	gaps     []gap // in order
	wholeDue time.Time
}

// gap are places from one to another in which nothing was seen.
type gap struct {
	low, high int64
	end       int64 // from this one on, no transaction has taken a place in it; 0 if it is not known yet
	since     time.Time
}

const (
	// gapPause is for how long a gap is looked at in any case: an INSERT by hand may take a place before it has a transaction id.
	gapPause = 200 * time.Millisecond
	maxGaps  = 1024

	// Everything is read again from the beginning now and then, if somebody has inserted with a place of his own.
	wholePause = 30 * time.Second
	wholeShare = 50 // of the time, for that
)

// next returns where to read.
func (r *reach) next(now time.Time) *store.ReadMessages {
	read := &store.ReadMessages{}
	if !now.Before(r.wholeDue) {
		return read
	}
	read.After = r.top
	for _, g := range r.gaps {
		read.Lows, read.Highs = append(read.Lows, g.low), append(read.Highs, g.high)
	}
	return read
}

// note notes what was read. The snapshot is one from just before.
func (r *reach) note(read *store.ReadMessages, snapshot *store.LimitRelay, took time.Duration, now time.Time) {
	octets := int64(0)
	for i := range read.Messages {
		octets += int64(len(read.Messages[i].Payload))
	}
	verified := int64(1<<63 - 1) // up to where it has read
	if n := len(read.Seqs); n >= read.Room || octets >= read.Octets {
		verified = read.Seqs[n-1]
	}
	if read.After == 0 {
		r.wholeDue = now.Add(max(wholePause, wholeShare*took))
	}
	r.close(read.Seqs, verified, snapshot, now)
	for _, seq := range read.Seqs {
		if seq > r.top {
			if seq > r.top+1 {
				r.gaps = append(r.gaps, gap{low: r.top + 1, high: seq - 1, since: now})
			}
			r.top = seq
		}
	}
	r.merge()
}

// close takes out of the gaps what was seen in them, and forgets those in which nothing is to come.
func (r *reach) close(seen []int64, verified int64, snapshot *store.LimitRelay, now time.Time) {
	left := make([]gap, 0, len(r.gaps)+1)
	for _, g := range r.gaps {
		if g.end == 0 {
			g.end = snapshot.Max // whoever had taken a place when it was found, had begun by then
		}
		if snapshot.Min >= g.end && verified >= g.high && now.Sub(g.since) >= gapPause {
			continue
		}
		first, _ := slices.BinarySearch(seen, g.low)
		for _, seq := range seen[first:] {
			if seq > g.high {
				break
			}
			if seq > g.low {
				left = append(left, gap{g.low, seq - 1, g.end, g.since})
			}
			g.low = seq + 1
		}
		if g.low <= g.high {
			left = append(left, g)
		}
	}
	r.gaps = left
}

// merge makes one gap of two if there are too many.
func (r *reach) merge() {
	if len(r.gaps) <= maxGaps {
		return
	}
	merged := r.gaps[:0]
	for i := 0; i < len(r.gaps); i += 2 {
		g := r.gaps[i]
		if i+1 < len(r.gaps) {
			next := r.gaps[i+1]
			g.high, g.end, g.since = next.high, max(g.end, next.end), next.since
			if r.gaps[i].end == 0 || next.end == 0 {
				g.end = 0
			}
		}
		merged = append(merged, g)
	}
	r.gaps = merged
}

// back notes that what is at a place was not dealt with.
func (r *reach) back(place int64) {
	r.top = min(r.top, place-1)
	r.gaps = slices.DeleteFunc(r.gaps, func(g gap) bool { return g.low > r.top })
	if n := len(r.gaps); n > 0 {
		r.gaps[n-1].high = min(r.gaps[n-1].high, r.top)
	}
}

// fork returns a reach to read something again with, while r stays where it is.
func (r *reach) fork(now time.Time) *reach {
	again := *r
	again.gaps, again.wholeDue = slices.Clone(r.gaps), now.Add(wholePause)
	return &again
}
