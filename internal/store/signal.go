package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// SendSignal leaves a value for an operation that has not ended. The first of a name counts.
type SendSignal struct {
	OperationID string
	Name        string
	Value       []byte

	Known bool // there is such an operation
}

// Queue adds the statement.
func (s *SendSignal) Queue(trip *roundtrip.Trip) {
	trip.Add(sendSignal, []byte(s.OperationID), []byte(s.Name), s.Value)
}

// Read reads the answer.
func (s *SendSignal) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { s.Known = row.Bool() })
}

// In sends the signal through what the caller has: a pool, or a transaction of its own.
func (s *SendSignal) In(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	return in.QueryRow(ctx, db.SendSignal, s.OperationID, s.Name, s.Value).Scan(&s.Known)
}

// ReadSignal reads what was sent.
type ReadSignal struct {
	OperationID string
	Name        string

	Found  bool
	Value  []byte
	SentAt time.Time
}

// Queue adds the statement.
func (r *ReadSignal) Queue(trip *roundtrip.Trip) {
	trip.Add(readSignal, []byte(r.OperationID), []byte(r.Name))
}

// Read reads the answer.
func (r *ReadSignal) Read(trip *roundtrip.Trip) {
	r.Found = trip.Row(func(row *roundtrip.Row) { r.Value, r.SentAt = row.Bytes(), row.Time() })
}

// TakeSignal says that the operation has recorded a signal.
type TakeSignal struct {
	OperationID string
	Name        string
}

// Queue adds the statement.
func (t TakeSignal) Queue(trip *roundtrip.Trip) {
	trip.Add(takeSignal, []byte(t.OperationID), []byte(t.Name))
}

// Read reads the answer.
func (TakeSignal) Read(trip *roundtrip.Trip) { trip.Skip() }

// DropSignals says that the operation has ended without what was sent to it besides.
type DropSignals struct{ OperationID string }

// Queue adds the statement.
func (d DropSignals) Queue(trip *roundtrip.Trip) { trip.Add(dropSignals, []byte(d.OperationID)) }

// Read reads the answer.
func (DropSignals) Read(trip *roundtrip.Trip) { trip.Skip() }
