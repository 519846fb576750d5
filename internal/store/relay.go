package store

import "github.com/idem-go/idem/internal/roundtrip"

// Lanes is in how many parts the outbox falls. A key belongs to one of them for good.
const Lanes = 16

// AppearAsRelay shows that an instance is there, for as long as the session is that works.
type AppearAsRelay struct {
	Instance int

	Held bool
}

// Queue adds the statement.
func (a *AppearAsRelay) Queue(trip *roundtrip.Trip) { trip.Add(appearAsRelay, number(a.Instance)) }

// Read reads the answer.
func (a *AppearAsRelay) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { a.Held = row.Bool() })
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
func (s *SeeLanes) Queue(trip *roundtrip.Trip) { trip.Add(seeLanes, []byte(s.Relay), numbers(s.Lanes)) }

// Read reads the answer.
func (s *SeeLanes) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { s.Free = row.Bool() })
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
	trip.Add(takeLanes, []byte(t.Relay), number(t.Instance), integer(t.Generation), numbers(t.Lanes))
}

// Read reads the answer.
func (t *TakeLanes) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) { t.Taken = append(t.Taken, row.Int()) })
}

// KeepLanes keeps the lanes of an instance until the transaction is over. If it has lost one, the server answers with the
// SQLSTATE Gone.
type KeepLanes struct{ Instance, Lanes int }

// Queue adds the statement.
func (k KeepLanes) Queue(trip *roundtrip.Trip) {
	trip.Add(keepLanes, number(k.Lanes), number(k.Instance))
}

// Read reads the answer.
func (KeepLanes) Read(trip *roundtrip.Trip) { trip.Skip() }

// LeaveLanes lets go of all lanes of an instance.
type LeaveLanes struct{ Instance int }

// Queue adds the statement.
func (l LeaveLanes) Queue(trip *roundtrip.Trip) { trip.Add(leaveLanes, number(l.Instance)) }

// Read reads the answer.
func (LeaveLanes) Read(trip *roundtrip.Trip) { trip.Skip() }

// LimitRelay begins every transaction of a relay.
type LimitRelay struct{}

// Queue adds the statement.
func (*LimitRelay) Queue(trip *roundtrip.Trip) { trip.Add(limitRelay) }

// Read reads the answer.
func (*LimitRelay) Read(trip *roundtrip.Trip) { trip.Skip() }
