package outbox

import "github.com/idem-go/idem/internal/store"

// later are messages of keys that have had their turn: of which several were read, and are published one after the other. Others
// are read and published before they go on.
type later struct {
	keys  map[store.HeldKey]bool
	place int64 // of the first one; 0 if there are none
	due   bool
}

// end notes what a batch has left because others have to have their turn. Another batch since the last one ends that of the others.
func (l *later) end(o *outcome) {
	l.due = l.place > 0
	if !o.turnOver || o.left == 0 {
		return
	}
	if l.keys == nil {
		l.keys = map[store.HeldKey]bool{}
	}
	for _, key := range o.leftKeys {
		l.keys[key] = true
	}
	l.leave(o.left)
}

func (l *later) leave(place int64) {
	if l.place == 0 || place < l.place {
		l.place = place
	}
}

// has reports whether a message has to wait, and notes it.
func (l *later) has(m *store.Queued) bool {
	waits := l.keys[keyOf(m)]
	if waits {
		l.leave(m.Seq)
	}
	return waits
}

// over returns the place from which to go on with them, if the others have had their turn, or nothing else is there.
func (l *later) over(b *batch, full bool) (place int64) {
	if place = l.place; place == 0 || !l.due && (len(b.messages) > 0 || full) {
		return 0
	}
	*l = later{}
	return place
}
