package store

import (
	"time"

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
func (*NextDelayed) Queue(trip *roundtrip.Trip) { trip.Add(nextDelayed) }

// Read reads the answer.
func (n *NextDelayed) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) {
		n.Due, n.Took = time.Duration(row.Int())*time.Microsecond, time.Duration(row.Int())*time.Microsecond
	})
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
	from := "-infinity"
	if !m.From.IsZero() {
		from = WriteMoment(m.From)
	}
	trip.Add(moveDelayed, []byte(from), number(m.Room), integer(m.Octets))
}

// Read reads the answer.
func (m *MoveDelayed) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { m.Mine, m.Moved, m.Until = row.Bool(), row.Int(), row.Time() })
}
