package record

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

// Value is an input, or the stored value of a step or a signal.
type Value struct {
	Bytes    int64   `json:"bytes"`               // the stored size
	SealedBy string  `json:"sealed_by,omitempty"` // key id; empty if the value is not sealed
	Stored   []byte  `json:"value,omitempty"`     // base64 in JSON; nil unless revealed
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

// Signal is a signal to an operation.
type Signal struct {
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
// reveal is true. The beginning of a sealed value is read in any case, because it names the key.
func Timeline(ctx context.Context, tx pgx.Tx, o *Operation, reveal bool) (steps []Step, sent []Signal, err error) {
	err = tx.QueryRow(ctx, "SELECT "+value+"FROM (SELECT input AS value FROM idem.operations WHERE id = $1::text::uuid) AS o", o.ID, reveal).
		Scan(o.Input.into()...)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := tx.Query(ctx, "SELECT seq, kind, name, outcome, recorded_at, due_at, coalesce(undos, 0), "+value+
		"FROM idem.steps WHERE operation_id = $1::text::uuid ORDER BY seq", o.ID, reveal) // CollectRows returns the error
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
	rows, _ = tx.Query(ctx, "SELECT name, sent_at, taken, "+value+
		"FROM idem.signals WHERE operation_id = $1::text::uuid ORDER BY sent_at, name", o.ID, reveal) // CollectRows returns the error
	sent, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Signal, err error) {
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

// Open decrypts the value. It fails if s does not have the key, or if bound is not what the value
// was bound to when it was sealed. It sets Text if the value is UTF-8.
func (v *Value) Open(s db.Sealer, bound []byte) (err error) {
	if v.SealedBy != "" {
		v.Stored, err = db.OpenValue(s, v.Stored, bound)
	}
	v.Text = TextOf(v.Stored)
	return err
}

// TextOf returns contents as text, or nil if there are none or they are not UTF-8.
func TextOf(contents []byte) *string {
	if contents == nil || !utf8.Valid(contents) {
		return nil
	}
	text := string(contents)
	return &text
}

// CallInDoubt is a call, or the call of an undo, that has begun and has no recorded outcome.
type CallInDoubt struct {
	Seq  int
	Kind string // call or undo
	Name string // as stored
}

// IsUndo reports whether d is the call of an undo.
func (d *CallInDoubt) IsUndo() bool { return d.Kind == string(db.UndoStep) }

// CallsInDoubt returns the calls of an operation whose outcome a person can resolve, in the order
// of the steps.
//
// If several calls began together, each has a row in idem.steps with the outcome begun. A call that
// began alone has no such row until its outcome is known. Only the row of the operation names the
// call, by Seq, Kind and Begun. If a person resolved a call with a value that the code cannot
// decode, the call is listed first, so that the person can correct the value.
func CallsInDoubt(o *Operation, steps []Step) (doubts []CallInDoubt) {
	alone := o.EndedAt == nil && o.Seq > 0 && (o.Kind == string(db.CallStep) || o.Kind == string(db.UndoStep))
	for _, s := range steps {
		d := CallInDoubt{s.Seq, s.Kind, s.Name}
		switch {
		case s.Outcome == string(db.StepBegun):
			doubts = append(doubts, d)
		case s.Outcome == string(db.StepResolved) && o.Reason == "value_unreadable" && s.Name == o.Step:
			doubts = append([]CallInDoubt{d}, doubts...)
		}
		alone = alone && s.Seq != o.Seq
	}
	if alone {
		doubts = append(doubts, CallInDoubt{o.Seq, o.Kind, o.Begun})
	}
	return doubts
}

// Event is an entry of the timeline of an operation.
type Event struct {
	Seq           int // 0 for a signal
	At            time.Time
	Took          time.Duration // since the previous entry
	Kind, Name    string
	Outcome, Mood string // Mood is how serious the outcome is: bad, warn or empty
	Value         Value
	DueAt         *time.Time
	Undo          string     // whether the step was or can be undone
	Child         string     // id of the operation that the step began as a child
	Error         *LastError // the error of the last attempt at the step
}

// Events returns the steps and the calls in progress in the order of their numbers, with the
// signals between them.
//
// A call that began alone has no row in steps until its outcome is known, so its entry comes from
// CallsInDoubt. A signal has no number. It is inserted before the first entry with a later time.
// The last error belongs to the last entry with the name of its step.
func Events(o *Operation, steps []Step, sent []Signal) (all []Event) {
	recorded, undoneBy := map[int]bool{}, map[string]int{} // keyed by the number, and by the name, of a step
	for _, step := range steps {
		if step.Kind == string(db.UndoStep) {
			name, _ := UndoOf(step.Name)
			undoneBy[name] = step.Seq
		}
	}
	for _, step := range steps {
		recorded[step.Seq] = true
		e := Event{Undo: undoOf(&step, undoneBy[step.Name]), Seq: step.Seq, At: step.RecordedAt, Kind: step.Kind, Name: step.Name,
			Outcome: step.Outcome, Value: step.Value, Child: step.Child}
		if step.Kind == string(db.UndoStep) {
			e.Name = UndoName(step.Name)
		}
		switch outcome := db.StepOutcome(step.Outcome); {
		case step.Kind == string(db.EndStep):
			e.Name, e.Outcome = "", "undo decided"
		case outcome == db.StepFailed:
			e.Mood = "bad"
		case outcome == db.StepBegun:
			e.Outcome, e.Mood = inProgress(o)
		case outcome == db.StepWaiting:
			e.Mood, e.DueAt = "warn", step.DueAt
		}
		all = append(all, e)
	}
	for _, d := range CallsInDoubt(o, steps) {
		if !recorded[d.Seq] {
			outcome, mood := inProgress(o)
			all = append(all, Event{Seq: d.Seq, At: o.Since, Kind: d.Kind, Name: UndoName(d.Name), Outcome: outcome, Mood: mood})
		}
	}
	slices.SortFunc(all, func(a, b Event) int { return a.Seq - b.Seq })
	for _, signal := range sent {
		e := Event{At: signal.SentAt, Kind: "signal", Name: signal.Name, Outcome: "received", Value: signal.Value}
		if !signal.Taken {
			e.Outcome, e.Mood = "not received yet", "warn"
		}
		at := slices.IndexFunc(all, func(other Event) bool { return other.At.After(e.At) })
		if at < 0 {
			at = len(all)
		}
		all = slices.Insert(all, at, e)
	}
	before := o.CreatedAt
	for i := range all {
		all[i].Took, before = max(all[i].At.Sub(before), 0), all[i].At
	}
	// A step may have several entries with its name: its own and those of its undos. The last error
	// is about the latest of them.
	if o.LastError != nil {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].Seq > 0 && all[i].Name == o.LastError.Step {
				all[i].Error = o.LastError
				break
			}
		}
	}
	return all
}

// undoOf describes the undo of a step. undoneBy is the number of the undo that undid the step, or
// 0.
func undoOf(step *Step, undoneBy int) string {
	switch {
	case step.Kind != string(db.TxStep) && step.Kind != string(db.CallStep):
		return ""
	case undoneBy > 0:
		return fmt.Sprintf("undone by #%d", undoneBy)
	case step.Undos > 0:
		return "can be undone"
	}
	return "has no undo"
}

// inProgress returns Event.Outcome and Event.Mood for a call that has begun and whose result is not
// recorded.
func inProgress(o *Operation) (outcome, mood string) {
	if o.State == Parked {
		return "begun", "bad"
	}
	return "in progress", "warn"
}
