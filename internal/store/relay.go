package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Lanes is in how many parts the outbox falls. A key belongs to one of them for good.
const Lanes = 16

// AppearAsRelay shows that an instance is there, for as long as the session is that works.
type AppearAsRelay struct {
	Instance int

	Held bool
}

// Queue adds the statement.
func (a *AppearAsRelay) Queue(trip *roundtrip.Trip) {
	q := db.AppearAsRelay{Instance: a.Instance}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AppearAsRelay) Read(trip *roundtrip.Trip) {
	var q db.AppearAsRelay
	q.Read(trip)
	a.Held = q.Row.Held
}

// Holds reports whether the session has the lock on its number.
func (a *AppearAsRelay) Holds() bool { return a.Held }

// SeeLanes tells whether no instance that is there has any of these lanes of a relay.
type SeeLanes struct {
	Relay string
	Lanes []int

	Free bool
}

// Queue adds the statement.
func (s *SeeLanes) Queue(trip *roundtrip.Trip) {
	q := db.SeeLanes{Relay: s.Relay, Lanes: numbers(s.Lanes)}
	q.Queue(trip)
}

// Read reads the answer.
func (s *SeeLanes) Read(trip *roundtrip.Trip) {
	var q db.SeeLanes
	q.Read(trip)
	s.Free = q.Row.Free
}

// TakeLanes takes those lanes of a relay that no instance has which is there, to work by the topics of a generation.
type TakeLanes struct {
	Relay      string
	Instance   int
	Generation int64
	Lanes      []int

	Taken []int
}

// Queue adds the statement.
func (t *TakeLanes) Queue(trip *roundtrip.Trip) {
	q := db.TakeLanes{Relay: t.Relay, Instance: t.Instance, Generation: t.Generation, Lanes: numbers(t.Lanes)}
	q.Queue(trip)
}

// Read reads the answer.
func (t *TakeLanes) Read(trip *roundtrip.Trip) {
	var q db.TakeLanes
	q.Each(trip, func(row *db.TakeLanesRow) { t.Taken = append(t.Taken, row.Lane) })
}

// KeepLanes keeps the lanes of an instance until the transaction is over. If it has lost one, the server answers with the
// SQLSTATE Gone.
type KeepLanes struct{ Instance, Lanes int }

// Queue adds the statement.
func (k KeepLanes) Queue(trip *roundtrip.Trip) {
	q := db.KeepLanes{Lanes: int64(k.Lanes), Instance: k.Instance}
	q.Queue(trip)
}

// Read reads the answer.
func (KeepLanes) Read(trip *roundtrip.Trip) { trip.Skip() }
