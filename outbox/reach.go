package outbox

import (
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// reach is how far a stream has been read. Places are not taken in the order of commits: a transaction may commit a message
// with a place far behind others that have left long ago, and the next one of its key may be in front of those. So every look
// begins at the floor, up to which nothing is to come any more, and finds what is late before what has waited for it. What was
// deleted beyond the floor stays in the way for as long as somebody has an old snapshot: the floor has to follow soon.
type reach struct {
	top   int64 // everything up to here that was there has been dealt with
	floor int64

	// What was not there up to mark is of these transactions, if it is to come. When they are over, and it was read once more,
	// mark is the floor.
	mark    int64
	writers []string
	marked  bool

	wholeDue time.Time
}

// How much of its time a stream spends on what is behind the floor: nothing is to come there, unless a person puts it there.
const (
	wholeShare = 50
	wholePause = 30 * time.Second
)

// next returns the place beyond which to read.
func (r *reach) next(now time.Time) int64 {
	if r.wholeIsDue(now) {
		return 0
	}
	return r.floor
}

// read notes what was read from a place: the last place that was met, 0 if there was nothing, and whether there may be more
// behind it. The writers were there just before.
func (r *reach) read(from, last int64, more bool, writers *store.SeeWriters, took time.Duration, now time.Time) {
	if from == 0 {
		r.wholeDue = now.Add(max(wholePause, wholeShare*took))
	}
	if r.marked && r.areOver(writers) && (!more || last >= r.mark) {
		r.floor, r.marked = max(r.floor, r.mark), false
	}
	if !r.marked {
		r.mark, r.writers, r.marked = r.top, writers.Writers, true
	}
	r.top = max(r.top, last)
}

// areOver reports whether none of the writers of the mark is there any more.
func (r *reach) areOver(seen *store.SeeWriters) bool {
	return !seen.Prepared && !slices.ContainsFunc(r.writers, func(name string) bool { return slices.Contains(seen.Writers, name) })
}

func (r *reach) wholeIsDue(now time.Time) bool { return !now.Before(r.wholeDue) }

// note notes what was read.
func (r *reach) note(read *store.ReadMessages, writers *store.SeeWriters, took time.Duration, now time.Time) {
	last, octets := int64(0), int64(0)
	for i := range read.Messages {
		last = read.Messages[i].Seq
		octets += int64(len(read.Messages[i].Payload))
	}
	more := len(read.Messages) >= read.Room || octets >= read.Octets
	r.read(read.After, last, more, writers, took, now)
}

// back notes that what is at a place was not dealt with.
func (r *reach) back(place int64) {
	r.top, r.floor = min(r.top, place-1), min(r.floor, place-1)
	r.marked = false
}
