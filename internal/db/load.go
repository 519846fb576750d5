package db

import "github.com/idem-go/idem/internal/roundtrip"

// Load reads the record of a key, even if the record has expired. If the transaction has just
// claimed the key for this call, Load reads nothing.
type Load struct {
	Key *Key

	Found  bool
	Record Record
}

func (l *Load) Queue(trip *roundtrip.Trip) {
	q := load{Key: l.Key}
	q.Queue(trip)
}

func (l *Load) Read(trip *roundtrip.Trip) {
	// readLoad does not copy a column whose value is in row already. These are the most frequent
	// values.
	row := loadRow{ExecutionID: l.Key.ExecutionID, State: Completed}
	l.Found = trip.Row(func(r *roundtrip.Row) { readLoad(&row, r) })
	if l.Found {
		l.Record = recordOf(&row)
	}
}

// recordOf returns the record of a row. The response may still be sealed.
func recordOf(row *loadRow) Record {
	header, err := decodeHeader(row.Header)
	return Record{
		SameHash: row.SameHash, ExecutionID: row.ExecutionID, State: row.State, Status: row.Status,
		Header: header, HeaderErr: err, Body: row.Body, SealedBy: row.SealedBy, Closed: true,
		CreatedAt: row.CreatedAt, CompletedAt: row.CompletedAt, ExpiresAt: row.ExpiresAt, LoadedAt: row.LoadedAt,
	}
}

// Ours reports whether the record belongs to the execution of this call.
func (l *Load) Ours() bool { return l.Found && l.Record.ExecutionID == l.Key.ExecutionID }

// Expired reports whether the record has expired. The record of this call's own execution never
// counts as expired, because the call loads it to learn the outcome of its COMMIT.
func (l *Load) Expired() bool {
	return l.Found && !l.Ours() && !l.Record.ExpiresAt.After(l.Record.LoadedAt)
}
