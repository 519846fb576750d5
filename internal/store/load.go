package store

import "github.com/idem-go/idem/internal/roundtrip"

// Load reads the record of a key, expired or not, unless the transaction has just claimed it for this call.
type Load struct {
	Key *Key

	Found  bool
	Record Record
}

// Queue adds the statement.
func (l *Load) Queue(trip *roundtrip.Trip) {
	k := l.Key
	trip.Add(load, k.hash, k.operationID, k.scope, k.key)
}

// Read reads the answer.
func (l *Load) Read(trip *roundtrip.Trip) {
	l.Found = trip.Row(func(row *roundtrip.Row) {
		r := &l.Record
		r.SameHash = row.Bool()
		r.OperationID = row.Text(l.Key.OperationID)
		r.State = State(row.Text(string(Completed), string(Processing), string(Failed), string(Running)))
		r.Status = row.Int()
		r.Header, r.HeaderErr = decodeHeader(row.Bytes())
		r.Body = row.Bytes()
		r.SealedBy, r.Closed = row.Text(), true
		r.CreatedAt, r.CompletedAt = row.Time(), row.Time()
		r.ExpiresAt, r.LoadedAt = row.Time(), row.Time()
	})
}

// Ours reports whether the record that was found is of this call's own execution.
func (l *Load) Ours() bool { return l.Found && l.Record.OperationID == l.Key.OperationID }

// Expired reports whether the record that was found counts as none. Our own never does: whoever asks for it asks what
// became of a COMMIT.
func (l *Load) Expired() bool {
	return l.Found && !l.Ours() && !l.Record.ExpiresAt.After(l.Record.LoadedAt)
}

// Holds asks whether the transaction is still the one that made the claim.
type Holds struct {
	Key *Key

	Held bool
}

// Queue adds the statement.
func (h *Holds) Queue(trip *roundtrip.Trip) { trip.Add(holds, h.Key.operationID) }

// Read reads the answer.
func (h *Holds) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { h.Held = row.Bool() })
}
