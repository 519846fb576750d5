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
	Unsealed    bool // no Sealer has seen it

	Known   bool // there is such an operation
	Refused bool // it has not ended, is sealed, and the value is not
}

// Queue adds the statement.
func (s *SendSignal) Queue(trip *roundtrip.Trip) {
	q := s.statement()
	q.Queue(trip)
}

func (s *SendSignal) statement() db.SendSignal {
	q := db.SendSignal{OperationID: s.OperationID, Name: s.Name, Value: s.Value}
	if s.Unsealed {
		q.Unless = []byte(valueTag)
	}
	return q
}

// Read reads the answer.
func (s *SendSignal) Read(trip *roundtrip.Trip) {
	var q db.SendSignal
	q.Read(trip)
	s.Known, s.Refused = q.Row.Known, q.Row.Refused
}

// In sends the signal through what the caller has: a pool, or a transaction of its own.
func (s *SendSignal) In(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	q := s.statement()
	return in.QueryRow(ctx, db.SendSignalSQL, q.Args()...).Scan(&s.Known, &s.Refused, nil)
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
	q := db.ReadSignal{OperationID: r.OperationID, Name: r.Name}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReadSignal) Read(trip *roundtrip.Trip) {
	var q db.ReadSignal
	q.Read(trip)
	r.Found, r.Value, r.SentAt = q.Found, q.Row.Value, q.Row.SentAt
}
