package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// NewInstance numbers a process that works on operations.
type NewInstance struct {
	Instance int
	Backend  int // the process id of the server's session
}

// Queue adds the statement.
func (n *NewInstance) Queue(trip *roundtrip.Trip) {
	var q db.NewInstance
	q.Queue(trip)
}

// Read reads the answer.
func (n *NewInstance) Read(trip *roundtrip.Trip) {
	var q db.NewInstance
	q.Read(trip)
	n.Instance, n.Backend = q.Row.Instance, q.Row.Backend
}

// AppearInSession shows that an instance is there, for as long as the session is.
type AppearInSession struct {
	Instance int

	Held bool
}

// Queue adds the statement.
func (a *AppearInSession) Queue(trip *roundtrip.Trip) {
	q := db.AppearInSession{Instance: a.Instance}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AppearInSession) Read(trip *roundtrip.Trip) {
	var q db.AppearInSession
	q.Read(trip)
	a.Held = q.Row.Held
}

// Holds reports whether the session has the lock on its number.
func (a *AppearInSession) Holds() bool { return a.Held }
