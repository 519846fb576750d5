package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// WriteMoment returns a moment as it is stored, which is not before it: a microsecond is the least that the database knows.
func WriteMoment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// NextDelayed asks when the first delayed message is due.
type NextDelayed struct {
	Due  time.Duration // until then, an hour at most; negative if it is overdue
	Took time.Duration // to find out
}

// Queue adds the statement.
func (*NextDelayed) Queue(trip *roundtrip.Trip) {
	var q db.NextDelayed
	q.Queue(trip)
}

// Read reads the answer.
func (n *NextDelayed) Read(trip *roundtrip.Trip) {
	var q db.NextDelayed
	q.Read(trip)
	n.Due, n.Took = time.Duration(q.Row.Due)*time.Microsecond, time.Duration(q.Row.Took)*time.Microsecond
}

// MoveDelayed inserts messages that are due in the outbox, unless another transaction does.
type MoveDelayed struct {
	From   time.Time // the first moment; zero for all of them
	Room   int
	Octets int64

	Mine  bool // no other transaction does
	Moved int
	Until time.Time // the last moment
}

// Queue adds the statement.
func (m *MoveDelayed) Queue(trip *roundtrip.Trip) {
	q := db.MoveDelayed{FromMoment: "-infinity", Room: m.Room, Octets: m.Octets}
	if !m.From.IsZero() {
		q.FromMoment = WriteMoment(m.From)
	}
	q.Queue(trip)
}

// Read reads the answer.
func (m *MoveDelayed) Read(trip *roundtrip.Trip) {
	var q db.MoveDelayed
	q.Read(trip)
	m.Mine, m.Moved, m.Until = q.Row.Mine, int(q.Row.Moved), q.Row.Until
}
