package operation

import (
	"encoding/json"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// childEnd is what a child tells its parent of its end. It is the value of the parent's step.
type childEnd struct {
	State     store.OperationState `json:"state"`
	Cancelled bool                 `json:"cancelled,omitempty"`
	Response  *idem.Response       `json:"response,omitempty"`
}

// childSignal is the name of the signal by which a child tells its end. No signal of a user has it.
func childSignal(id string) string { return "#" + id }

// outcome is that of the parent's step.
func (e *childEnd) outcome() store.StepOutcome {
	if e.State == store.OperationCompleted {
		return store.StepDone
	}
	return store.StepFailed
}

// tells returns what tells the parent of this operation that it has ended, nothing if it has none.
func (w *work) tells(end *childEnd) ([]txn.Request, error) {
	if w.parent == "" {
		return nil, nil
	}
	name := childSignal(w.operation)
	told, err := json.Marshal(end)
	if err == nil {
		told, err = seal(w.call.Sealer(), told, store.BoundSignal(w.parent, name))
	}
	return []txn.Request{&store.SendSignal{OperationID: w.parent, Name: name, Value: told}}, err
}
