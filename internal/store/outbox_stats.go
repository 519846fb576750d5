package store

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// OutboxStats tells how far the outbox is behind. It counts up to Most.
type OutboxStats struct {
	Most int

	ReadAt                        time.Time
	Oldest, OldestHeld            time.Time // zero if there is none
	Waiting, Held, HeldKeys, Dead int
}

// Queue adds the statement.
func (s *OutboxStats) Queue(trip *roundtrip.Trip) { trip.Add(outboxStats, number(s.Most)) }

// Read reads the answer.
func (s *OutboxStats) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) {
		s.ReadAt, s.Oldest, s.OldestHeld = row.Time(), row.Time(), row.Time()
		s.Waiting, s.Held, s.HeldKeys, s.Dead = row.Int(), row.Int(), row.Int(), row.Int()
	})
}
