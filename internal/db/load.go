package db

import "github.com/idem-go/idem/internal/roundtrip"

// Load reads the record of a key, expired or not, unless the transaction has just claimed it for this call.
type Load struct {
	Key *Key

	Found  bool
	Record Record
}

// Queue adds the statement.
func (l *Load) Queue(trip *roundtrip.Trip) {
	q := load{Key: l.Key}
	q.Queue(trip)
}

// Read reads the answer.
func (l *Load) Read(trip *roundtrip.Trip) {
	row := loadRow{ExecutionID: l.Key.ExecutionID, State: Completed} // what they mostly are, which is not copied then
	l.Found = trip.Row(func(r *roundtrip.Row) { readLoad(&row, r) })
	if l.Found {
		l.Record = recordOf(&row)
	}
}

// recordOf returns the record of a row, as it is stored.
func recordOf(row *loadRow) Record {
	header, err := decodeHeader(row.Header)
	return Record{
		SameHash: row.SameHash, ExecutionID: row.ExecutionID, State: row.State, Status: row.Status,
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
