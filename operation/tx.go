package operation

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Tx is a step in Postgres: what fn writes through its tx, and the memory of its value, are committed together. Neighbouring Tx
// share one transaction, which is committed when something needs it to be: a Call, a Sleep, an Await, the end of the operation,
// or Checkpoint. What is true of the fn of idem.Do is true of this one. One that ends the transaction itself parks the operation, if anything of it is
// on record: another run would write again what is committed without its memory.
//
// If fn returns an error its writes are undone, and the error goes to the function, which may go another way; those of the steps
// before it stay. So does the error of a constraint that is deferred to a COMMIT: the function is run again from what is on record, and the
// error is that of the last Tx of the transaction behind which the constraint does not hold. Only in the first transaction of an
// operation it rolls back everything, as with idem.Do, and the call returns it. Errors that pass, such as a deadlock or a lost connection, are not shown to the function: it is run again,
// from what is on record.
func Tx[T any](op *Op, name string, fn func(tx pgx.Tx) (T, error)) (T, error) {
	s, err := op.enter(store.TxStep, name)
	if err != nil {
		var none T
		return none, err
	}
	return inStep(op, s.name, func() (shown T, err error) {
		if s.found != nil {
			stored, err := op.replay(s)
			return result[T](op, s, stored, err)
		}
		err = op.inTx(s, func(tx pgx.Tx) (stored []byte, err error) {
			value, err := fn(tx)
			if err != nil {
				return nil, err
			}
			stored, shown, err = encode(op.work.definition.codec, value)
			return stored, err
		}, store.StepDone)
		return shown, err
	})
}

// Exec is Tx for a step that has no value. A step that was a Tx with a value, and is on record as that, cannot go on as an Exec.
func Exec(op *Op, name string, fn func(tx pgx.Tx) error) error {
	_, err := Tx(op, name, func(tx pgx.Tx) (struct{}, error) { return struct{}{}, fn(tx) })
	return err
}

// inTx runs a step in the transaction.
func (op *Op) inTx(s *step, fn func(pgx.Tx) ([]byte, error), outcome store.StepOutcome) error {
	if err := op.begin(); err != nil {
		return err
	}
	op.used = true
	var value []byte
	began := time.Now()
	_, err := op.tx.Run(op.work.operation, func(tx pgx.Tx) (bool, error) {
		var err error
		value, err = fn(tx)
		return false, err
	})
	if err == nil && op.work.checked[s.seq] {
		err = txn.Answered(op.tx.Ask(op.ctx, store.CheckConstraints{})) // by what the program has deferred, too
	}
	op.work.taken(op.ctx, s, began, err, false)
	if err != nil {
		return op.undoStep(s, err)
	}
	op.remember(s, outcome, value)
	return nil
}

// undoStep undoes what a step has written that returned err, if the transaction goes on without it.
func (op *Op) undoStep(s *step, err error) error {
	switch {
	case errors.Is(err, idem.ErrTxEnded):
		return op.txEnded(err, s)
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.TooSlow(err):
		return op.halt(broken, err)
	case txn.Transient(err), txn.Stale(err):
		return op.halt(again, err)
	}
	if undone := op.tx.Ask(op.ctx, store.UndoStepWrites{}); undone != nil {
		switch {
		case lacksSavepoint(undone):
			return op.txEnded(txn.Ended("its savepoint is gone", err), s)
		case errors.Is(err, idem.ErrTxAborted):
			return op.halt(again, err)
		}
		return op.failed(undone)
	}
	op.used = false
	stored, seen := op.failure(err)
	op.remember(s, store.StepFailed, stored)
	if s.kind == store.UndoTxStep { // it parks the operation, and is no way that the function may go
		return err
	}
	return seen
}
