package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// Replay runs the function of an operation on what History has returned of it, with no database: each step returns what is on
// record, and the run ends where the record ends. No step is taken and no call is made. The definition is the one whose name
// is in the history.
//
// It returns nil if a process with this code goes on with the operation, or ends it as it has ended. An error that is ErrParked, a
// *ParkedError, says why the operation is parked by this code instead: steps that are on record are asked for otherwise, or not at all, or a value no
// longer decodes. Any other error is that of a document that is no history, a name without a definition, or a function that
// fails, or ends otherwise than the operation has.
//
// Of an operation that has ended all steps count as on record, also those that were committed together with its end: code that no longer
// asks for one of those is reported, although no operation under way has it.
func Replay(ctx context.Context, history []byte, definitions ...Runnable) error {
	h, err := readHistory(history)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(definitions, func(d Runnable) bool { return d.defined().name == h.Name })
	if i < 0 {
		return fmt.Errorf("operation: no definition is called %q: operations of that name are left alone", h.Name)
	}
	d := definitions[i].defined()
	if d.err != nil {
		return d.err
	}
	call, err := door.Settings(nil, h.ID, h.ID, [32]byte{1}, 0, nil)
	if err != nil {
		return err
	}
	op := &Op{work: &work{definition: d, call: call, operation: h.ID, input: h.Input.stored(), epoch: 1, undoing: h.Undoing, cancelled: h.Cancelled, replays: true}}
	op.work.remembers(h)
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	_, err = d.run(op, op.work.input)
	op.over = true
	return op.replayed(h, err)
}

// remembers has the steps of a history on record. A pause in front of another step is over.
func (w *work) remembers(h *history) {
	w.loadedAt, w.loaded = time.Now(), time.Now()
	w.recorded = map[int]store.Step{}
	for i, s := range h.Steps {
		w.recorded[i+1] = store.Step{Seq: i + 1, Kind: s.Kind, Name: s.Name, Outcome: s.Outcome, Value: s.stored(), DueAt: w.loadedAt}
	}
}

// replayed tells what a run on a history has come to.
func (op *Op) replayed(h *history, err error) error {
	_, isRejected := op.work.call.Rejection(err)
	passes := err != nil && !isRejected && !IsFinal(err)
	op.check(passes)
	undoing := h.Undoing && !h.Cancelled
	switch s := op.stopped; {
	case s != nil && s.why == parked:
	case s != nil && s.why != ended && s.why != suspended:
		return s.err
	case s != nil && s.why == suspended:
		return nil // how the function goes on depends on what is not on record
	case s == nil && passes:
		return fmt.Errorf("operation: the function fails: %w", err)
	case undoing && err == nil:
		op.parkChanged("the function no longer says so")
	case undoing && s != nil && passes:
		op.parkChanged("the function asks for more")
	case s == nil && err != nil && h.State == store.OperationCompleted:
		return fmt.Errorf("operation: it was completed, and the function ends it in an error: %w", err)
	}
	if s := op.stopped; s != nil && s.why == parked {
		return &ParkedError{OperationID: h.ID, Step: s.step, Reason: s.reason, Cause: s.cause}
	}
	return nil
}
