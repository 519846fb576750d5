package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// history is the document that History returns and Replay reads.
type history struct {
	Format    int                  `json:"format"`
	ID        string               `json:"id"`
	Name      string               `json:"name"`
	State     store.OperationState `json:"state"`
	Undoing   bool                 `json:"undoing,omitempty"`
	Cancelled bool                 `json:"cancelled,omitempty"`
	Input     shown                `json:"input"`
	Steps     []historyStep        `json:"steps"`
}

// historyStep is a step, in the order of the code. A call that was begun and has no answer is one of them.
type historyStep struct {
	Kind    store.StepKind    `json:"kind"`
	Name    string            `json:"name"`
	Outcome store.StepOutcome `json:"outcome"`
	shown
}

// format is what this version writes, and the only one that there is.
const format = 1

// shown is an input or a value as it is stored. JSON is shown as JSON, so that a person can read and change it; what another Codec has made is
// in base64.
type shown struct {
	Value  json.RawMessage `json:"value,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func shownAs(stored []byte) shown {
	var compact bytes.Buffer
	if json.Compact(&compact, stored) == nil && bytes.Equal(compact.Bytes(), stored) {
		return shown{Value: stored}
	}
	return shown{Base64: stored}
}

// stored returns the value as it was, however the file is laid out.
func (e *shown) stored() []byte {
	var compact bytes.Buffer
	if e.Value != nil && json.Compact(&compact, e.Value) == nil {
		return compact.Bytes()
	}
	return e.Base64
}

// History returns what is on record of an operation, under way or ended: its input and its steps with their values, as a JSON document for a
// file. Replay holds new code to it. It has no key and no scope; input and values are there in clear, and may be changed by hand before
// the file is shared. Those that are sealed are opened with the Sealer among opts, the only option that matters: without it the error is
// idem.ErrUnreadable. ErrUnknownOperation is also the error for one that was a single transaction, of which nothing is on record.
func History(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) ([]byte, error) {
	id, err := parsedID(id)
	if err != nil {
		return nil, err
	}
	sealer, err := door.Sealer(opts)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("operation: pool is nil")
	}
	engine, found := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}, store.LoadHistory{OperationID: id}
	if err := engine.Query(ctx, &found); err != nil {
		return nil, err
	}
	if !found.Found {
		return nil, ErrUnknownOperation
	}
	h := history{Format: format, ID: id, Name: found.Name, State: found.State, Undoing: found.Undoing, Cancelled: found.Cancelled, Steps: []historyStep{}}
	input, err := open(sealer, found.Input, store.BoundInput(id))
	if err != nil {
		return nil, fmt.Errorf("operation: its input: %w", err)
	}
	h.Input = shownAs(input)
	for i := range found.Steps {
		s := &found.Steps[i]
		if s.Kind == store.EndStep {
			continue
		}
		value, err := open(sealer, s.Value, store.BoundStep(id, s))
		if err != nil {
			return nil, fmt.Errorf("operation: step %q: %w", s.Name, err)
		}
		h.Steps = append(h.Steps, historyStep{s.Kind, s.Name, s.Outcome, shownAs(value)})
	}
	return h.encode()
}

func (h *history) encode() ([]byte, error) {
	var file bytes.Buffer
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false) // a value is to come back byte for byte
	encoder.SetIndent("", "  ")
	err := encoder.Encode(h)
	return file.Bytes(), err
}

// readHistory reads a document of History.
func readHistory(file []byte) (*history, error) {
	h := &history{}
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(h); err != nil {
		return nil, fmt.Errorf("operation: it is no history: %w", err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("operation: it is no history, or one of another version of idem: its format is %d", h.Format)
	}
	return h, nil
}
