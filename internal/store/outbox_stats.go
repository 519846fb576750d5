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
	FirstDelayed, NextDue         time.Time // of the delayed ones, and of those that are not due yet; zero if there is none
	Waiting, Held, HeldKeys, Dead int
	Due, Delayed                  int // of the delayed ones
}

// Queue adds the statement.
func (s *OutboxStats) Queue(trip *roundtrip.Trip) { trip.Add(outboxStats, number(s.Most)) }

// Read reads the answer.
func (s *OutboxStats) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) {
		s.ReadAt, s.Oldest, s.OldestHeld = row.Time(), row.Time(), row.Time()
		s.FirstDelayed, s.NextDue = row.Time(), row.Time()
		s.Waiting, s.Due, s.Delayed = row.Int(), row.Int(), row.Int()
		s.Held, s.HeldKeys, s.Dead = row.Int(), row.Int(), row.Int()
	})
}
