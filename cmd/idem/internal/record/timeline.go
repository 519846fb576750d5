package record

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

// Value is an input, or the stored value of a step or a signal.
type Value struct {
	Bytes    int64   `json:"bytes"`               // the stored size
	SealedBy string  `json:"sealed_by,omitempty"` // key id; "" if it is not sealed
	Stored   []byte  `json:"value,omitempty"`     // base64; nil unless revealed
	Text     *string `json:"value_text,omitempty"`
}

// Step is a recorded step.
type Step struct {
	Seq        int        `json:"seq"`
	Kind       string     `json:"kind"`
	Name       string     `json:"name"`
	Outcome    string     `json:"outcome"`
	RecordedAt time.Time  `json:"recorded_at"`
	DueAt      *time.Time `json:"due_at,omitempty"`
	Undos      int        `json:"-"` // the number of undos of the step
	Value      Value      `json:"value"`
	Child      string     `json:"child,omitempty"` // the operation that the step began; empty if there is none
}

// Sent is a signal to an operation.
type Sent struct {
	Name   string    `json:"name"`
	SentAt time.Time `json:"sent_at"`
	Taken  bool      `json:"taken"`
	Value  Value     `json:"value"`
}

// value is the column list for a Value. A sealed value begins with a header of 14 bytes, followed
// by the id of its key. The query reads the first 270 bytes of a sealed value, which contain the
// id.
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
		if s.Kind == string(db.CallStep) { // for a call, due_at is when the call began
			s.DueAt = nil
		}
		if s.Kind == string(db.ChildStep) {
			s.Child = operation.ChildID(o.ID, s.Name)
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

// into returns the scan targets for the columns of value.
func (v *Value) into() []any { return []any{&v.Bytes, &v.Stored, (*sealer)(&v.SealedBy)} }

// sealer is a scan target that reads the key id from the beginning of a value.
type sealer string

// ScanBytes implements pgtype.BytesScanner.
func (s *sealer) ScanBytes(beginning []byte) error {
	*s = sealer(db.SealerOf(beginning))
	return nil
}

// Open decrypts the value. It fails if s does not have the key, or if bound is not the context in
// which the value was sealed. It sets Text if the value is UTF-8.
func (v *Value) Open(s db.Sealer, bound []byte) (err error) {
	if v.SealedBy != "" {
		v.Stored, err = db.OpenValue(s, v.Stored, bound)
	}
	v.Text = textOf(v.Stored)
	return err
}

// textOf returns contents as text, or nil if there are none or they are not UTF-8.
func textOf(contents []byte) *string {
	if contents == nil || !utf8.Valid(contents) {
		return nil
	}
	text := string(contents)
	return &text
}

// Doubt is a call, or the call of an undo, that has begun and has no recorded outcome.
type Doubt struct {
	Seq  int
	Kind string // call or undo
	Name string // as stored
}

// IsUndo reports whether d is the call of an undo.
func (d *Doubt) IsUndo() bool { return d.Kind == string(db.UndoStep) }

// Doubts returns the calls of an operation whose outcome a person can resolve, in the order of the
// steps.
//
// Calls that began together have a row each in steps, with the outcome begun. A call that began
// alone has no row until its outcome is known. Only the row of the operation names it, by Seq, Kind
// and Begun. If a person resolved a call with a value that the code cannot decode, the call is
// listed first, so that the person can correct the value.
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
