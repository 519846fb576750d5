package broker

import (
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/lab/torture/letter"
)

// lease is how long a delivery is reserved for the process that fetched it.
const lease = 1500 * time.Millisecond

// topic has all letters that were published to it.
type topic struct {
	taken []letter.Letter
}

// queue is the state of one consumer of a topic.
type queue struct {
	consumer  letter.Consumer
	topic     *topic
	read      int              // number of letters of the topic that are in lines
	lines     map[string]*line // by key; a letter without a key has its own line
	open      []*line          // lines that are not empty
	acked     []int            // positions in the topic, the latest last
	delivered map[int]int      // number of deliveries, by position
}

// line has the letters of a key that are not acknowledged, in order.
type line struct {
	key    string
	places []int     // positions in the topic
	until  time.Time // end of the lease
	listed bool
}

// enlist adds new letters of the topic to their lines.
func (q *queue) enlist() {
	for ; q.read < len(q.topic.taken); q.read++ {
		q.put(q.read, false)
	}
}

// put adds a letter to the end of its line, or to the front if first is set.
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

// take leases lines until it has the requested number of letters. For a consumer without order it
// sometimes ignores leases, so that several processes get the same letters at a time.
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

// settle removes acknowledged letters and sets when the other lines are delivered again.
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

// rewind forgets the latest n acknowledgements.
func (q *queue) rewind(n int) {
	n = min(n, len(q.acked))
	for i := range n {
		q.put(q.acked[len(q.acked)-1-i], true)
	}
	q.acked = q.acked[:len(q.acked)-n]
}

// pending returns the number of letters that are not acknowledged.
func (q *queue) pending() int {
	q.enlist()
	n := 0
	for _, l := range q.open {
		n += len(l.places)
	}
	return n
}
