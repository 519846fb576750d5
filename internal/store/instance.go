package store

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// NewInstance numbers a process that works on operations.
type NewInstance struct {
	Instance int
	Backend  int // the process id of the server's session
}

// Queue adds the statement.
func (n *NewInstance) Queue(trip *roundtrip.Trip) { trip.Add(newInstance) }

// Read reads the answer.
func (n *NewInstance) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { n.Instance, n.Backend = row.Int(), row.Int() })
}

// AppearInSession shows that an instance is there, for as long as the session is.
type AppearInSession struct {
	Instance int

	Held bool
}

// Queue adds the statement.
func (a *AppearInSession) Queue(trip *roundtrip.Trip) { trip.Add(appear, number(a.Instance)) }

// Read reads the answer.
func (a *AppearInSession) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { a.Held = row.Bool() })
}

// Holds reports whether the session has the lock on its number.
func (a *AppearInSession) Holds() bool { return a.Held }

// RenewLease shows that an instance is there, for as long as TTL.
type RenewLease struct {
	Instance int
	TTL      time.Duration
}

// Queue adds the statement.
func (r RenewLease) Queue(trip *roundtrip.Trip) {
	trip.Add(renewLease, number(r.Instance), microseconds(r.TTL))
}

// Read reads the answer.
func (RenewLease) Read(trip *roundtrip.Trip) { trip.Skip() }

// EndLease says that an instance is gone.
type EndLease struct{ Instance int }

// Queue adds the statement.
func (e EndLease) Queue(trip *roundtrip.Trip) { trip.Add(endLease, number(e.Instance)) }

// Read reads the answer.
func (EndLease) Read(trip *roundtrip.Trip) { trip.Skip() }
