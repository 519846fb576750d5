package broker

import (
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/lab/torture/letter"
)

// lease is for how long a delivery is its consumer's alone.
const lease = 1500 * time.Millisecond

// topic is all that was published there.
type topic struct {
	taken []letter.Letter
}

// queue is what one consumer has of its topic.
type queue struct {
	consumer  letter.Consumer
	topic     *topic
	read      int              // so many of the topic's are in lines
	lines     map[string]*line // by key; a letter without one has a line of its own
	open      []*line          // those that have anything
	acked     []int            // places in the topic, the latest last
	delivered map[int]int      // how often, by place
}

// line are the letters of a key that were not acknowledged, in their order.
type line struct {
	key    string
	places []int     // in the topic
	until  time.Time // it is somebody's to this moment
	listed bool
}

// enlist has new letters stand in line.
func (q *queue) enlist() {
	for ; q.read < len(q.topic.taken); q.read++ {
		q.put(q.read, false)
	}
}

// put has one stand in line, at its head if it was there before.
func (q *queue) put(place int, first bool) {
	key := q.topic.taken[place].Key
	if key == "" {
		key = q.topic.taken[place].ID
	}
	l := q.lines[key]
	if l == nil {
		l = &line{key: key}
		q.lines[key] = l
	}
	if first {
		l.places = append([]int{place}, l.places...)
	} else {
		l.places = append(l.places, place)
	}
	if !l.listed {
		l.listed = true
		q.open = append(q.open, l)
	}
}

// take leases lines to somebody until there are as many letters as asked for. Where nobody wants an order it now and then takes
// no notice of leases: several have the same letters at a time.
func (q *queue) take(r *rand.Rand, most int, now time.Time) []int {
	q.enlist()
	twice := !q.consumer.Ordered && r.IntN(3) == 0
	var taken []int
	var left []*line
	r.Shuffle(len(q.open), func(i, j int) { q.open[i], q.open[j] = q.open[j], q.open[i] })
	for _, l := range q.open {
		if len(l.places) == 0 {
			l.listed = false
			delete(q.lines, l.key)
			continue
		}
		left = append(left, l)
		if len(taken) >= most || now.Before(l.until) && !twice {
			continue
		}
		l.until = now.Add(lease)
		taken = append(taken, l.places[:min(len(l.places), most-len(taken))]...)
	}
	q.open = left
	return taken
}

// settle takes those out of line that are acknowledged, and lets the others be delivered again from some moment on.
func (q *queue) settle(acked map[int]bool, again map[int]time.Time) {
	for _, l := range q.open {
		var kept []int
		for _, place := range l.places {
			if acked[place] {
				q.acked = append(q.acked, place)
				l.until = time.Time{}
				continue
			}
			kept = append(kept, place)
		}
		l.places = kept
	}
	for _, l := range q.open {
		if len(l.places) > 0 {
			if at, ok := again[l.places[0]]; ok {
				l.until = at
			}
		}
	}
}

// rewind forgets the latest acknowledgements.
func (q *queue) rewind(n int) {
	n = min(n, len(q.acked))
	for i := range n {
		q.put(q.acked[len(q.acked)-1-i], true)
	}
	q.acked = q.acked[:len(q.acked)-n]
}

// pending is how many letters wait to be acknowledged.
func (q *queue) pending() int {
	q.enlist()
	n := 0
	for _, l := range q.open {
		n += len(l.places)
	}
	return n
}
