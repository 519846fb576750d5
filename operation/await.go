package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// Await waits for a signal: a webhook, a person's approval. It returns the value that was sent first under that name, also if
// it was sent before, and ErrTimeout if nothing was sent within timeout, by the database's clock, however late either is found. A signal of a
// transaction has to be committed by then: one that is not there when the timeout is found is not waited for. It
// holds nothing meanwhile: neither a connection, nor the caller, nor a worker. A name is awaited once in an operation.
func Await[T any](op *Op, name string, timeout time.Duration) (T, error) {
	var none T
	s, err := op.enter(store.AwaitStep, name)
	if err != nil {
		return none, err
	}
	return inStep(op, s.name, func() (T, error) {
		if s.name != name {
			return none, op.halt(broken, fmt.Errorf("%w: %q is awaited twice", ErrInvalidName, name))
		}
		op.awaits = true
		stored, err := op.await(s, timeout)
		if err != nil {
			return none, err
		}
		value, err := decode[T](jsonCodec{}, stored)
		if err != nil {
			return none, op.parkUndecoded(s, none)
		}
		return value, nil
	})
}

// parkUndecoded parks the operation because a signal does not decode. If it was not received yet, which makes it a value on record, another one
// may be sent.
func (op *Op) parkUndecoded(s *step, wanted any) error {
	if s.found != nil && s.found.Outcome != store.StepWaiting {
		return op.parkUnfit(s, wanted)
	}
	_ = op.park("the signal %q does not decode into %T: send another one of that name, and Retry it", s.name, wanted)
	op.stopped.step, op.stopped.undecoded = s.name, true
	return op.stopped
}

// signalPause is the pause between two looks for a signal that has to come soon, if it is to come in time.
const signalPause = 200 * time.Millisecond

func (op *Op) await(s *step, timeout time.Duration) ([]byte, error) {
	if s.found != nil && s.found.Outcome != store.StepWaiting {
		return op.replay(s)
	}
	for {
		var remaining time.Duration
		if s.found != nil { // before the look: what comes between the two came in time
			remaining = op.work.until(s.found.DueAt)
		}
		signal := store.ReadSignal{OperationID: op.work.operation, Name: s.name}
		if err := op.look(&signal); err != nil {
			return nil, err
		}
		switch {
		case signal.Found && !s.isTooLate(signal.SentAt):
			value, err := open(op.work.call.Sealer(), signal.Value, store.BoundSignal(op.work.operation, s.name))
			if err != nil {
				return nil, op.halt(broken, fmt.Errorf("operation: signal %q: %w", s.name, err))
			}
			op.remember(s, store.StepDone, value)
			op.signals = append(op.signals, store.TakeSignal{OperationID: op.work.operation, Name: s.name})
			return value, nil
		case s.found == nil:
			op.waits(s, timeout)
			if err := op.commit(commit{free: true, at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: max(timeout, 0)}}); err != nil {
				return nil, err
			}
			return nil, op.halt(suspended, nil)
		}
		if remaining <= 0 {
			stored, seen := op.failure(ErrTimeout)
			op.remember(s, store.StepFailed, stored)
			return nil, seen
		}
		if err := op.waitFor(s, waitForSignal(remaining), true); err != nil {
			return nil, err
		}
	}
}

// isTooLate reports whether a signal was sent when the wait for it was over.
func (s *step) isTooLate(sentAt time.Time) bool {
	return s.found != nil && !s.found.DueAt.IsZero() && sentAt.After(s.found.DueAt)
}

func waitForSignal(remaining time.Duration) time.Duration {
	if remaining > longPause {
		return remaining
	}
	return min(remaining, signalPause)
}

// look asks for a signal, on the connection that the operation has, if it has one.
func (op *Op) look(signal *store.ReadSignal) error {
	if op.work.epoch == 0 { // no caller could know its id
		return nil
	}
	ask := op.work.call.Engine().Query
	if op.tx != nil {
		ask = op.tx.Ask
	}
	if err := ask(op.ctx, signal); err != nil {
		return op.failed(err)
	}
	return nil
}

// Signal sends a value to an operation that awaits it, or will: the first of a name counts, and all others are dropped without
// a word, as are those for an operation that has ended. Where the first one has parked the operation, because it does not decode into the type of the
// Await, another one takes its place, and counts as sent when the first one was: send it, and then Retry the operation. db is a pool, or a transaction that the signal is to be part of. Values are
// JSON. Of the options only idem.WithSealer matters: a signal is as secret as what the operation keeps, so give it the Sealer that
// the operation has. Without one it is refused with ErrUnsealed where the operation is sealed and has not ended. Where transactions are serializable by default the database may refuse it with 40001: send it again.
func Signal(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id, name string, value any, opts ...idem.Option) error {
	if err := checkName(name); err != nil {
		return err
	}
	id, err := parsedID(id)
	if err != nil {
		return err
	}
	stored, err := jsonCodec{}.Encode(value)
	switch {
	case err != nil:
		return fmt.Errorf("operation: a signal of type %T cannot be encoded: %w", value, err)
	case len(stored) > maxValue:
		return fmt.Errorf("%w: %d bytes, limit %d", ErrValueTooLarge, len(stored), maxValue)
	}
	sealer, err := door.Sealer(opts)
	if err != nil {
		return err
	}
	if stored, err = seal(sealer, stored, store.BoundSignal(id, name)); err != nil {
		return err
	}
	signal := store.SendSignal{OperationID: id, Name: name, Value: stored, Unsealed: sealer == nil}
	err = signal.In(ctx, db)
	switch {
	case err != nil:
		return err
	case !signal.Known:
		return ErrUnknownOperation
	case signal.Refused:
		return ErrUnsealed
	}
	return nil
}
