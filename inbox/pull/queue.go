package pull

import (
	"slices"
	"time"
)

// queue is what a Consumer holds, in the order in which it was received.
type queue[D any] struct {
	ordered bool // by key
	held    []*Delivery[D]
}

type key struct{ source, key string }

// keyOf returns the key of a delivery whose order is kept.
func (q *queue[D]) keyOf(d *Delivery[D]) (k key, ok bool) {
	return key{d.Message.Source, d.Message.Key}, q.ordered && d.Message.Key != ""
}

// ready returns up to limit deliveries that may be handled at that time, and if there is none, when
// the first one may be.
//
// In order, a delivery waits behind those of its key that are not due. A delivery that has failed
// is returned without those behind it, because it may fail again, and they would take the places of
// other keys. But if several of a key have failed, all up to the last one of them are returned: the
// inbox, which knows the order in which they have failed first, handles the first one of them.
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
