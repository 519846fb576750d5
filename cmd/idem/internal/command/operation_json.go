package command

import (
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/operation"
)

// shownTimeline is the JSON of an operation with its recorded steps.
type shownTimeline struct {
	shownOperation
	Parent    string      `json:"parent,omitempty"`
	InDoubt   []shownCall `json:"in_doubt,omitempty"`
	Canceled  bool        `json:"canceled"`
	Undos     []string    `json:"undos,omitempty"` // undos that are still to run, in this order
	Kept      []string    `json:"kept,omitempty"`  // steps that are done and have no undo
	CreatedAt time.Time   `json:"created_at"`
	EndedAt   *time.Time  `json:"ended_at"`
	Input     shownValue  `json:"input"`
	Steps     []shownStep `json:"steps"`
	Signals   []shownSent `json:"signals"`
}

// shownCall is the JSON of a call that was begun and has no recorded outcome.
type shownCall struct {
	Kind string `json:"kind"`
	Step string `json:"step"`
	Key  string `json:"call_key"`
}

type shownStep struct {
	Seq        int        `json:"seq"`
	Kind       string     `json:"kind"`
	Name       string     `json:"name"`
	Outcome    string     `json:"outcome"`
	RecordedAt time.Time  `json:"recorded_at"`
	DueAt      *time.Time `json:"due_at,omitempty"`
	Value      shownValue `json:"value"`
	Child      string     `json:"child,omitempty"` // ID of the child operation that the step began
}

type shownSent struct {
	Name   string     `json:"name"`
	SentAt time.Time  `json:"sent_at"`
	Taken  bool       `json:"taken"`
	Value  shownValue `json:"value"`
}

type shownValue struct {
	Bytes    int64   `json:"bytes"`
	SealedBy string  `json:"sealed_by,omitempty"`
	Value    []byte  `json:"value,omitempty"` // base64
	Text     *string `json:"value_text,omitempty"`
}

func newShownValue(v record.Value) shownValue {
	shown := shownValue{Bytes: v.Bytes, SealedBy: v.SealedBy, Value: v.Stored}
	if v.Stored != nil && utf8.Valid(v.Stored) {
		text := string(v.Stored)
		shown.Text = &text
	}
	return shown
}

func (t *timeline) shown(wholeKey bool) shownTimeline {
	o := t.operation
	shown := shownTimeline{
		shownOperation: newShownOperation(*o, wholeKey), Parent: o.Parent, Canceled: o.Canceled, Undos: t.undos, Kept: t.kept, CreatedAt: o.CreatedAt.UTC(), EndedAt: inUTC(o.EndedAt),
		Input: newShownValue(o.Input), Steps: []shownStep{}, Signals: []shownSent{},
	}
	for _, d := range t.doubts() {
		step, _ := record.UndoOf(d.Name)
		shown.InDoubt = append(shown.InDoubt, shownCall{d.Kind, step, jsonKey(operation.CallKey(o.ID, d.Kind, d.Name), wholeKey)})
	}
	for _, s := range t.steps {
		shown.Steps = append(shown.Steps, shownStep{s.Seq, s.Kind, s.Name, s.Outcome, s.RecordedAt.UTC(), inUTC(s.DueAt), newShownValue(s.Value), childOf(o, &s)})
	}
	for _, s := range t.sent {
		shown.Signals = append(shown.Signals, shownSent{s.Name, s.SentAt.UTC(), s.Taken, newShownValue(s.Value)})
	}
	return shown
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}
