package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
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
func (s *OutboxStats) Queue(trip *roundtrip.Trip) {
	q := db.OutboxStats{Most: s.Most}
	q.Queue(trip)
}

// Read reads the answer.
func (s *OutboxStats) Read(trip *roundtrip.Trip) {
	var q db.OutboxStats
	q.Read(trip)
	row := &q.Row
	s.ReadAt, s.Oldest, s.OldestHeld, s.FirstDelayed, s.NextDue = row.ReadAt, row.Oldest, row.OldestHeld, row.Overdue, row.NextDue
	s.Waiting, s.Due, s.Delayed = int(row.Waiting), int(row.Due), int(row.Delayed)
	s.Held, s.HeldKeys, s.Dead = int(row.Held), int(row.HeldKeys), int(row.Dead)
}
