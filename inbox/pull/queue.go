package pull

import (
	"slices"
	"time"
)

// queue contains the deliveries that a Consumer keeps, in the order in which they were received.
type queue[D any] struct {
	ordered bool // the queue keeps the order of each key
	held    []*Delivery[D]
}

type key struct{ source, key string }

// keyOf returns the key of a delivery. It returns false if the queue does not keep the order of the
// delivery.
func (q *queue[D]) keyOf(d *Delivery[D]) (k key, ok bool) {
	return key{d.Message.Source, d.Message.Key}, q.ordered && d.Message.Key != ""
}

// ready returns up to limit deliveries that may be handled now. If there is none, the result due is
// the time at which the first delivery may be handled.
//
// In an ordered queue, a delivery waits while an earlier delivery of its key is not due. If a
// delivery has failed before, ready returns it without the later deliveries of its key. If it
// failed again, these would have taken the room of other keys for nothing. If several deliveries of
// a key have failed, ready returns all deliveries of the key up to the last failed one. The inbox
// knows which of them failed first, and handles that one first.
func (q *queue[D]) ready(now time.Time, limit int) (ready []*Delivery[D], due time.Time) {
	lastFailed := map[key]int{}
	for i, d := range q.held {
		if k, ok := q.keyOf(d); ok && d.failed {
			lastFailed[k] = i
		}
	}
	waiting, retried := map[key]bool{}, map[key]bool{}
	for i, d := range q.held {
		k, ok := q.keyOf(d)
		switch {
		case len(ready) == limit:
			return ready, due
		case retried[k]:
			if i <= lastFailed[k] {
				ready = append(ready, d)
			}
		case d.due.After(now):
			waiting[k] = ok
			if due.IsZero() || d.due.Before(due) {
				due = d.due
			}
		case !waiting[k]:
			ready = append(ready, d)
			retried[k] = ok && d.failed
		}
	}
	return ready, due
}

func (q *queue[D]) dropRevoked() {
	q.held = slices.DeleteFunc(q.held, (*Delivery[D]).isRevoked)
}

func (q *queue[D]) dropSettled() {
	q.held = slices.DeleteFunc(q.held, func(d *Delivery[D]) bool {
		_, settled := d.Outcome()
		return settled
	})
}
