package store

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Holder asks whether a transaction holds a key, by the lock that its claim has taken.
type Holder struct {
	Lock int64

	Held  bool
	Since time.Time // zero if this role may not see it
}

// Queue adds the statement.
func (h *Holder) Queue(trip *roundtrip.Trip) {
	high, low := uint64(h.Lock)>>32, uint64(h.Lock)&0xffffffff
	trip.Add(holder, strconv.AppendUint(nil, high, 10), strconv.AppendUint(nil, low, 10))
}

// Read reads the answer.
func (h *Holder) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { h.Held, h.Since = row.Bool(), row.Time() })
}

// Live reads all but the response of the live record of a key.
type Live struct {
	Scope, Key string

	Found  bool
	Record Record
}

// Queue adds the statement.
func (l *Live) Queue(trip *roundtrip.Trip) { trip.Add(live, []byte(l.Scope), []byte(l.Key)) }

// Read reads the answer.
func (l *Live) Read(trip *roundtrip.Trip) {
	l.Found = trip.Row(func(row *roundtrip.Row) {
		r := &l.Record
		r.State, r.OperationID = State(row.Text()), row.Text()
		r.CreatedAt, r.CompletedAt, r.ExpiresAt = row.Time(), row.Time(), row.Time()
	})
}
