package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
)

// Value is the stored value of an input, a step or a signal.
type Value struct {
	Bytes    int64  // stored size
	SealedBy string // ID of the seal key; "" if plain
	Stored   []byte // nil unless revealed
}

// Step is a recorded step.
type Step struct {
	Seq                 int
	Kind, Name, Outcome string
	RecordedAt          time.Time
	DueAt               *time.Time
	Undos               int // number of its undos
	Value               Value
}

// Sent is a signal that was sent to an operation.
type Sent struct {
	Name   string
	SentAt time.Time
	Taken  bool
	Value  Value
}

// value lists the columns of a Value. If the value starts like a sealed one, its first bytes are
// read in any case, for the ID of the key.
const value = `coalesce(length(value), 0)::int8, CASE WHEN $2 THEN value END,
	CASE WHEN substring(value FOR 14) = convert_to(E'idem.sealed/1\n', 'UTF8') THEN substring(value FOR 270) END `

// Timeline returns the steps and signals of an operation, and sets o.Input. It reads values only if
// reveal is set.
func Timeline(ctx context.Context, tx pgx.Tx, o *Operation, reveal bool) (steps []Step, sent []Sent, err error) {
	err = tx.QueryRow(ctx, "SELECT "+value+"FROM (SELECT input AS value FROM idem.operations WHERE id = $1::text::uuid) AS o", o.ID, reveal).
		Scan(o.Input.into()...)
	if err != nil {
		return nil, nil, err
	}
	rows, err := tx.Query(ctx, "SELECT seq, kind, name, outcome, recorded_at, due_at, coalesce(undos, 0), "+value+
		"FROM idem.steps WHERE operation_id = $1::text::uuid ORDER BY seq", o.ID, reveal)
	if err != nil {
		return nil, nil, err
	}
	steps, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
		err = row.Scan(append([]any{&s.Seq, &s.Kind, &s.Name, &s.Outcome, &s.RecordedAt, &s.DueAt, &s.Undos}, s.Value.into()...)...)
		if s.Kind == string(db.CallStep) { // for a call, due_at is the time at which the call began
			s.DueAt = nil
		}
		return s, err
	})
	if err != nil {
		return nil, nil, err
	}
	rows, err = tx.Query(ctx, "SELECT name, sent_at, taken, "+value+
		"FROM idem.signals WHERE operation_id = $1::text::uuid ORDER BY sent_at, name", o.ID, reveal)
	if err != nil {
		return nil, nil, err
	}
	sent, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Sent, err error) {
		err = row.Scan(append([]any{&s.Name, &s.SentAt, &s.Taken}, s.Value.into()...)...)
		return s, err
	})
	return steps, sent, err
}

func (v *Value) into() []any { return []any{&v.Bytes, &v.Stored, (*sealer)(&v.SealedBy)} }

// sealer scans the first bytes of a value into the ID of its seal key.
type sealer string

// ScanBytes implements pgtype.BytesScanner.
func (s *sealer) ScanBytes(beginning []byte) error {
	*s = sealer(db.SealerOf(beginning))
	return nil
}

// Open decrypts Stored if the value is sealed.
func (v *Value) Open(s db.Sealer, bound []byte) (err error) {
	if v.SealedBy == "" { // stored by a program without a Sealer
		return nil
	}
	v.Stored, err = db.OpenValue(s, v.Stored, bound)
	return err
}

// Doubt is a call, or the call of an undo, that was begun and has no recorded outcome.
type Doubt struct {
	Seq  int
	Kind string // "call" or "undo"
	Name string // the stored name
}

// IsUndo reports whether d is the call of an undo.
func (d *Doubt) IsUndo() bool { return d.Kind == string(db.UndoStep) }

// Doubts returns the calls of an operation that a person may resolve, in the order of their steps.
// If the operation is parked because a value that a person gave cannot be decoded, the step with
// that value comes first.
//
// An operation whose only call is in progress may have no row for it in the steps yet. The call is
// then taken from the operation itself.
func Doubts(o *Operation, steps []Step) (doubts []Doubt) {
	alone := o.EndedAt == nil && o.Seq > 0 && (o.Kind == string(db.CallStep) || o.Kind == string(db.UndoStep))
	for _, s := range steps {
		d := Doubt{s.Seq, s.Kind, s.Name}
		switch {
		case s.Outcome == string(db.StepBegun):
			doubts = append(doubts, d)
		case s.Outcome == string(db.StepResolved) && o.Reason == "value_unreadable" && s.Name == o.Step:
			doubts = append([]Doubt{d}, doubts...)
		}
		alone = alone && s.Seq != o.Seq
	}
	if alone {
		doubts = append(doubts, Doubt{o.Seq, o.Kind, o.Begun})
	}
	return doubts
}
