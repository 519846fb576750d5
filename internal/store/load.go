package store

import (
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Load reads the record of a key, expired or not, unless the transaction has just claimed it for this call.
type Load struct {
	Key *Key

	Found  bool
	Record Record
}

// Queue adds the statement.
func (l *Load) Queue(trip *roundtrip.Trip) {
	k := l.Key
	q := db.Load{Hash: k.hash[:], ExecutionID: k.ExecutionID, Scope: k.scope, Key: k.key}
	q.Queue(trip)
}

// Read reads the answer.
func (l *Load) Read(trip *roundtrip.Trip) {
	var q db.Load
	q.Row.ExecutionID, q.Row.State = l.Key.ExecutionID, string(Completed) // what they mostly are, which is not copied then
	q.Read(trip)
	if l.Found = q.Found; l.Found {
		l.Record = recordOf(&q.Row)
	}
}

// recordOf returns the record of a row, as it is stored.
func recordOf(row *db.LoadRow) Record {
	header, err := decodeHeader(row.Header)
	return Record{
		SameHash: row.SameHash, ExecutionID: row.ExecutionID, State: State(row.State), Status: row.Status,
		Header: header, HeaderErr: err, Body: row.Body, SealedBy: row.SealedBy, Closed: true,
		CreatedAt: row.CreatedAt, CompletedAt: row.CompletedAt, ExpiresAt: row.ExpiresAt, LoadedAt: row.LoadedAt,
	}
}

// Ours reports whether the record that was found is of this call's own execution.
func (l *Load) Ours() bool { return l.Found && l.Record.ExecutionID == l.Key.ExecutionID }

// Expired reports whether the record that was found counts as none. Our own never does: a caller that asks for it asks how
// a COMMIT has ended.
func (l *Load) Expired() bool {
	return l.Found && !l.Ours() && !l.Record.ExpiresAt.After(l.Record.LoadedAt)
}

// StillClaimed asks whether the transaction is still the one that made the claim.
type StillClaimed struct {
	Key *Key

	Held bool
}

// Queue adds the statement.
func (h *StillClaimed) Queue(trip *roundtrip.Trip) {
	q := db.StillClaimed{ExecutionID: h.Key.ExecutionID}
	q.Queue(trip)
}

// Read reads the answer.
func (h *StillClaimed) Read(trip *roundtrip.Trip) {
	var q db.StillClaimed
	q.Read(trip)
	h.Held = q.Row.Holds
}
