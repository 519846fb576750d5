package operation

import (
	"errors"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Checkpoint commits what the steps so far have done, where nothing else would: before something long, or something that
// others wait for, or between groups of Tx where there are hundreds. What is committed is rolled back no more: register the undo of a
// step before Checkpoint.
func (op *Op) Checkpoint() error {
	if !op.taking.TryLock() {
		return ErrMisused
	}
	defer op.taking.Unlock()
	switch {
	case op.over:
		return ErrMisused
	case op.stopped != nil:
		return op.stopped
	case op.ctx.Err() != nil:
		return op.interrupted()
	case op.tx == nil && len(op.pending) == 0:
		return nil
	}
	return op.commit(commit{})
}

// begin makes sure that there is a transaction, with a savepoint behind which nothing has run.
func (op *Op) begin() error {
	switch {
	case op.tx == nil:
		return op.open(store.Savepoint{})
	case op.used:
		if err := op.tx.Ask(op.ctx, store.KeepStep{}, store.Savepoint{}); lacksSavepoint(err) {
			return op.txEnded(txn.Ended("its savepoint is gone", nil), nil)
		} else if err != nil {
			return op.failed(err)
		}
		op.used = false
	}
	return nil
}

// open begins a transaction of the operation.
func (op *Op) open(requests ...txn.Request) error {
	requests = append([]txn.Request{store.Reclaim{ExecutionID: op.work.operation}}, requests...)
	tx, err := op.work.call.Engine().Open(op.ctx, requests...)
	if err != nil {
		return op.failed(err)
	}
	op.tx, op.used = tx, false
	return nil
}

// close gives up the transaction, if there is one.
func (op *Op) close(err error) {
	if op.tx != nil {
		op.tx.CloseAfter(err)
		op.tx = nil
	}
}

// failed ends the run because of an error of the database.
func (op *Op) failed(err error) error {
	switch {
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.Transient(err), txn.Stale(err):
		return op.halt(again, err)
	}
	return op.halt(broken, err)
}

// commit is what a commit is to say besides the steps that it records.
type commit struct {
	at     store.At
	free   bool                 // no process owns the operation after it
	always bool                 // also if the operation was cancelled, and this run does not know
	state  store.OperationState // running if it is empty
	with   []txn.Request
	rouses bool // another operation is due by it
}

// commit makes durable what the steps have done, together with the memory of them. It fences: if another process has taken the
// operation up, nothing of it is committed.
func (op *Op) commit(c commit) error {
	if op.tx == nil {
		if err := op.open(); err != nil {
			return err
		}
	}
	w := op.work
	if err := op.appear(); err != nil {
		return err
	}
	if !c.free {
		c.at.Owner = w.instance.number
	}
	advance := store.AdvanceOperation{OperationID: w.operation, Epoch: w.epoch, State: c.state, Undoing: op.undoing || w.undoing, At: c.at}
	if !c.always {
		advance.Cancelled = &w.cancelled
	}
	if advance.State == "" {
		advance.State = store.OperationRunning
	}
	first := store.BeginOperation{Key: &w.key, Name: w.definition.name, TTL: w.ttl, ClaimedAt: w.createdAt, At: c.at}
	requests := []txn.Request{&advance}
	if w.epoch == 0 {
		var err error
		if first.Input, err = seal(w.call.Sealer(), w.input, store.BoundInput(w.operation)); err != nil {
			return op.halt(broken, err)
		}
		requests = []txn.Request{&store.HoldKey{Key: &w.key, Room: store.Held}, &first}
	}
	for _, r := range op.pending {
		var err error
		if r.Step.Value, err = seal(w.call.Sealer(), r.Step.Value, store.BoundStep(w.operation, &r.Step)); err != nil {
			return op.halt(broken, err)
		}
		requests = append(requests, &r)
	}
	for _, taken := range op.signals {
		requests = append(requests, taken)
	}
	if op.awaits && advance.State != store.OperationRunning {
		requests = append(requests, store.DropSignals{OperationID: w.operation})
	}
	requests = append(requests, c.with...)
	begun := time.Now()
	err := op.tx.Commit(op.ctx, requests...)
	if err != nil {
		return op.uncommitted(err, advance.Advanced)
	}
	w.epoch = max(w.epoch, 1)
	w.instance.confirm()
	op.committed(&advance, begun)
	if c.rouses {
		w.instance.rouse()
	}
	return nil
}

// appear makes sure that this process is seen by others before it owns anything.
func (op *Op) appear() error {
	if op.work.instance != nil {
		return nil
	}
	instance, err := adoptIn(op.ctx, op.work.call.Engine(), op.tx)
	if err != nil {
		return op.failed(err)
	}
	op.work.instance = instance
	return op.register()
}

// register puts the operation on the list of those that this process works on.
func (op *Op) register() error {
	if !op.work.instance.enter(op.work.operation, op.cancel) {
		return op.halt(again, errPresenceLost)
	}
	return nil
}

func (op *Op) committed(advance *store.AdvanceOperation, begun time.Time) {
	w := op.work
	for i := range op.pending {
		s := op.pending[i].Step
		if s.Seq == w.unrecorded {
			w.unrecorded = 0
		}
		if old, ok := w.recorded[s.Seq]; ok {
			s.DueAt = old.DueAt
		}
		w.recorded[s.Seq] = s
		delete(w.returned, s.Seq)
	}
	if at := &advance.At; at.Kind == store.CallStep {
		if _, ok := w.recorded[at.Seq]; !ok {
			w.recorded[at.Seq] = store.Step{Seq: at.Seq, Kind: at.Kind, Name: at.Step, Outcome: store.StepBegun}
			w.unrecorded = at.Seq
		}
	}
	same := w.at.Seq == advance.At.Seq && w.at.Seq != 0
	w.at, w.undoing, w.attempts = advance.At, advance.Undoing, 0
	if !same {
		w.elapsed = func() time.Duration { return time.Since(begun) }
	}
	op.tx, op.pending, op.signals = nil, nil, nil
}

// uncommitted tells what follows from a COMMIT that did not succeed.
func (op *Op) uncommitted(err error, advanced bool) error {
	var unacknowledged *txn.UnknownError
	first := op.work.epoch == 0
	switch {
	case errors.As(err, &unacknowledged) && first:
		op.close(nil)
		op.work.epoch = 1 // if it has happened
		return op.halt(unknown, unacknowledged.Err)
	case errors.As(err, &unacknowledged):
		op.close(nil)
		if txn.Internal(unacknowledged.Err) && op.blame(unacknowledged.Err) { // it may be that of a Tx; what is on record tells first
			return op.haltFree(unacknowledged.Err)
		}
		return op.halt(again, unacknowledged.Err)
	case op.ctx.Err() != nil && errors.Is(err, op.ctx.Err()):
		return op.interrupted()
	case txn.HasCode(err, store.Gone) && first, txn.HasCode(err, store.Gone) && advanced:
		return op.txEnded(txn.Ended("the claimed record is gone, or the transaction is another one", nil), nil)
	case txn.HasCode(err, store.Gone):
		return op.refused(err)
	}
	if !txn.Transient(err) && !txn.Stale(err) && op.ctx.Err() == nil && op.blame(err) {
		return op.haltFree(err)
	}
	return op.failed(err)
}

// refused tells why a commit was fenced off: because another process has the operation, or because fn has ended the transaction
// that was begun for it, and begun another one.
func (op *Op) refused(err error) error {
	op.close(err)
	show := store.ShowOperation{OperationID: op.work.operation}
	if err := op.work.call.Engine().Query(op.ctx, &show); err != nil {
		return op.failed(err)
	}
	ours := show.State == store.OperationRunning && show.Epoch == op.work.epoch
	if ours && show.Cancelled && !op.work.cancelled {
		return op.haltFree(errCancelNoticed)
	}
	if ours {
		return op.txEnded(txn.Ended("a statement of fn did, and began another", nil), nil)
	}
	return op.halt(lost, nil)
}
