package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/store"
)

// reach is how far a stream has been read. Places are not taken in the order of commits: a transaction may commit a message
// with a place far behind others that have left long ago. So nothing that is not read counts as over: what is behind top is
// read again, from floor up to which nothing is to come any more, and now and then from the beginning. In between it is read
// from top, because what was deleted stays in the way for as long as somebody has an old snapshot.
type reach struct {
	top   int64 // everything up to here that was there has been dealt with
	floor int64

	// Up to mark, what was not there is of transactions that were not over at one time. When all before markEnd are, and it was
	// read once more, mark is the floor.
	mark, markEnd int64

	floorDue, wholeDue time.Time
}

// How much of its time a stream spends on what is behind it.
const (
	floorShare = 10
	wholeShare = 50
	wholePause = 30 * time.Second
)

// next returns the place beyond which to read.
func (r *reach) next(now time.Time) int64 {
	switch {
	case r.wholeIsDue(now):
		return 0
	case !now.Before(r.floorDue):
		return r.floor
	}
	return r.top
}

// read notes what was read from a place: the last place that was met, 0 if there was nothing, and whether there may be more
// behind it. The snapshot is one from just before: all transactions before min were over, and none from end on was begun.
func (r *reach) read(from, last int64, more bool, min, end int64, took time.Duration, now time.Time) {
	if from == 0 {
		r.wholeDue = now.Add(max(wholePause, wholeShare*took))
	}
	before := r.top
	if from <= r.floor {
		r.floorDue = now.Add(floorShare * took)
		if r.markEnd > 0 && min >= r.markEnd && (!more || last >= r.mark) {
			r.floor, r.markEnd = max(r.floor, r.mark), 0
		}
	}
	if r.markEnd == 0 {
		r.mark, r.markEnd = before, end
	}
	r.top = max(r.top, last)
}

func (r *reach) wholeIsDue(now time.Time) bool { return !now.Before(r.wholeDue) }

// note notes what was read.
func (r *reach) note(read *store.ReadMessages, limit *store.LimitRelay, took time.Duration, now time.Time) {
	last, octets := int64(0), int64(0)
	for i := range read.Messages {
		last = read.Messages[i].Seq
		octets += int64(len(read.Messages[i].Payload))
	}
	more := len(read.Messages) >= read.Room || octets >= read.Octets
	r.read(read.After, last, more, limit.Min, limit.Max, took, now)
}

// back notes that what is at a place was not dealt with.
func (r *reach) back(place int64) {
	r.top, r.floor = min(r.top, place-1), min(r.floor, place-1)
	r.mark, r.markEnd = 0, 0
}
