package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
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
	q := db.Holder{LockHigh: int64(uint64(h.Lock) >> 32), LockLow: int64(uint32(h.Lock))}
	q.Queue(trip)
}

// Read reads the answer.
func (h *Holder) Read(trip *roundtrip.Trip) {
	var q db.Holder
	q.Read(trip)
	h.Held, h.Since = q.Row.Held, q.Row.Since
}

// Live reads all but the response of the live record of a key.
type Live struct {
	Scope, Key string

	Found  bool
	Record Record
}

// Queue adds the statement.
func (l *Live) Queue(trip *roundtrip.Trip) {
	q := db.Live{Scope: l.Scope, Key: l.Key}
	q.Queue(trip)
}

// Read reads the answer.
func (l *Live) Read(trip *roundtrip.Trip) {
	var q db.Live
	q.Read(trip)
	if l.Found = q.Found; l.Found {
		l.Record = Record{State: State(q.Row.State), ExecutionID: q.Row.ExecutionID,
			CreatedAt: q.Row.CreatedAt, CompletedAt: q.Row.CompletedAt, ExpiresAt: q.Row.ExpiresAt}
	}
}
