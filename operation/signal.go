package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Await waits for a signal: a webhook, a person's approval. It returns the value that was sent
// first under that name, also if it was sent before, and ErrTimeout if nothing was sent within
// timeout, by the database's clock. A signal of a transaction must be committed by then. Await
// holds nothing meanwhile: neither a connection, nor the caller, nor a worker. A name is awaited
// once in an operation.
func Await[T any](op *Op, name string, timeout time.Duration) (T, error) {
	var none T
	s, err := op.enter(request{kind: store.AwaitStep, name: name})
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
		switch {
		case err != nil && s.do == replay:
			return none, op.park(s.name, ReasonValueUnreadable, "the recorded value of step %q does not decode into %T: the code has changed", s.name, none)
		case err != nil:
			return none, op.park(s.name, ReasonSignalUnreadable, "the signal %q does not decode into %T: send another one of that name, and Retry the operation", s.name, none)
		}
		return value, nil
	})
}

// signalPause is the pause between two looks for a signal whose timeout is near.
const signalPause = 200 * time.Millisecond

func (op *Op) await(s *step, timeout time.Duration) ([]byte, error) {
	if s.do == replay {
		return op.replay(s)
	}
	for {
		var remaining time.Duration
		if s.do == wait { // before the look: what comes between the two came in time
			remaining = op.work.clock.until(s.recorded.DueAt)
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
		case s.do == run:
			op.waits(s, timeout)
			if err := op.commit(commit{free: true, at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: max(timeout, 0)}}); err != nil {
				return nil, err
			}
			return nil, op.halt(suspended, nil)
		case remaining <= 0:
			stored, seen := op.failure(ErrTimeout)
			op.remember(s, store.StepFailed, stored)
			return nil, seen
		}
		pause := remaining
		if remaining <= longPause {
			pause = min(remaining, signalPause)
		}
		if err := op.waitFor(s, pause, true); err != nil {
			return nil, err
		}
	}
}

// isTooLate reports whether a signal was sent when the wait for it was over.
func (s *step) isTooLate(sentAt time.Time) bool {
	return s.recorded != nil && !s.recorded.DueAt.IsZero() && sentAt.After(s.recorded.DueAt)
}

// look reads a signal, on the connection that the operation has, if it has one.
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

// Signal sends a value to an operation that awaits it, or will. The first of a name counts: later
// ones are dropped, as are those for an operation that has ended. If the first one has parked the
// operation, because it does not decode into the type of the Await, another one takes its place,
// and counts as sent when the first one was: send it, and then Retry the operation. db is a pool,
// or a transaction that the signal is to be part of. Values are JSON. Of the options only
// idem.WithSealer matters: give Signal the Sealer of the operation. Without one it is refused with
// ErrUnsealed where the operation is sealed and has not ended. Where transactions are serializable
// by default the database may refuse it with 40001: send it again.
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

// Wait waits until the operation has ended, and returns its answer, which Do of its key would
// return too. It does not work on the operation: that is for a Worker, or for callers of Do. Wait
// asks the database again after a pause that grows to a second, and holds no connection between two
// looks. Of the options, idem.WithSealer matters.
//
// The error is that of ctx if ctx ends first; ErrParked, at once, if the operation is parked;
// ErrUndone if it has ended without an answer, canceled or in a Final error; ErrAnswerGone if the
// answer has expired, or the key was used again; ErrUnknownOperation if there is no operation of
// that id.
func Wait(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) (idem.Result, error) {
	id, err := parsedID(id)
	switch {
	case err != nil:
		return idem.Result{}, err
	case pool == nil:
		return idem.Result{}, errNoPool
	}
	if err := idem.CheckOptions(opts...); err != nil {
		return idem.Result{}, err
	}
	engine := engineOf(pool)
	pause := txn.Pauses{Current: 10 * time.Millisecond, Limit: time.Second}
	for {
		found := store.FindOperation{OperationID: id}
		if err := engine.Query(ctx, &found); err != nil && ctx.Err() != nil {
			return idem.Result{}, endOf(ctx)
		} else if err != nil {
			return idem.Result{}, err
		}
		if found.Found && found.State == store.OperationRunning {
			if err := txn.Sleep(ctx, pause.Next()); err != nil {
				return idem.Result{}, endOf(ctx)
			}
			continue
		}
		return answer(ctx, pool, &found, opts)
	}
}

// endOf returns the error of a context that has ended, and its cause.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// answer returns the answer of an operation that does not run.
func answer(ctx context.Context, pool *pgxpool.Pool, found *store.FindOperation, opts []idem.Option) (idem.Result, error) {
	switch {
	case !found.Found:
		return idem.Result{}, ErrUnknownOperation
	case found.State == store.OperationParked:
		return idem.Result{}, &ParkedError{
			OperationID: found.OperationID, Step: found.Step, Reason: Reason(found.Reason), ReasonText: found.ReasonText, Since: found.Since,
		}
	case found.State == store.OperationUndone:
		return idem.Result{}, ErrUndone
	}
	result, err := door.Do(ctx, pool, found.Scope, found.Key, found.Hash, opts, onlyReplay{})
	switch {
	case errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrInProgress), err == nil && result.ExecutionID != found.OperationID:
		return idem.Result{}, ErrAnswerGone
	case err != nil:
		return idem.Result{}, err
	}
	return result, nil
}

// onlyReplay is the Runner of a call that replays an answer, and does nothing if there is none.
type onlyReplay struct{}

func (onlyReplay) Begin(context.Context, longcall.Execution, *txn.Tx) longcall.Ending {
	return longcall.Ending{Outcome: longcall.Unheld, Err: ErrAnswerGone}
}

func (onlyReplay) Resume(context.Context, longcall.Execution, string) longcall.Ending {
	return longcall.Ending{Outcome: longcall.Failed, Err: ErrAnswerGone}
}

func (onlyReplay) Ended(context.Context, longcall.Execution, string, func(context.Context, ...txn.Request) error) (longcall.Ending, bool) {
	return longcall.Ending{}, false
}

var errNoPool = errors.New("operation: pool is nil")

func engineOf(pool *pgxpool.Pool) *txn.Engine {
	return &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
}
