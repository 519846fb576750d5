package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// errUnknownWithoutKey says that a COMMIT was not acknowledged. There is no record to ask.
var errUnknownWithoutKey = errors.New("idemhttp: COMMIT was not acknowledged, and the request had no key to ask by")

// runKeyless runs the handler in a transaction that records nothing, again after a serialization failure or a deadlock.
func (x *exchange) runKeyless(ctx context.Context, scope string) error {
	run := &keyless{exchange: x, started: time.Now(), outcome: idem.OutcomePanicked}
	if x.config.Observer == nil {
		return run.do(ctx)
	}
	run.seen = x.config.Observer.TraceStart(ctx, idem.TraceStartData{Name: x.config.Name, Scope: scope})
	var err error
	defer func() { run.tellEnd(err) }()
	err = run.do(ctx)
	run.outcome = run.became(err)
	return err
}

// keyless is the run of a request without a key, for its observer.
type keyless struct {
	*exchange
	seen     context.Context // the observer's own
	started  time.Time
	attempts int
	decision Decision
	outcome  idem.Outcome
}

func (k *keyless) do(ctx context.Context) error {
	engine := txn.Engine{Pool: k.pool, Source: k.source, Options: k.config.TxOptions, Limits: txn.DefaultLimits}
	err := engine.Do(ctx, k.config.Retries, func(tx pgx.Tx) (undo bool, err error) {
		if k.attempts > 0 {
			k.tell(idem.EventRetried, idem.CauseConflict) // the only one for which the engine runs anything again
		}
		k.attempts++
		k.tell(idem.EventExecuting, idem.CauseNone)
		k.decision, err = k.run(tx)
		if k.decision == Commit && err == nil {
			k.tell(idem.EventRecording, idem.CauseNone)
		}
		return k.decision != Commit, err
	})
	var unknown *txn.UnknownError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %w", errUnknownWithoutKey, unknown.Err)
	}
	return err
}

// became is the outcome as it would be with a key, for which Forget is an error.
func (k *keyless) became(err error) idem.Outcome {
	switch {
	case errors.Is(err, errUnknownWithoutKey):
		return idem.OutcomeUnknown
	case err != nil || k.decision == Forget:
		return idem.OutcomeFailed
	case k.decision == Undo:
		return idem.OutcomeRejected
	}
	return idem.OutcomeExecuted
}

func (k *keyless) tell(event idem.Event, cause idem.Cause) {
	if k.config.Observer != nil {
		k.config.Observer.TraceEvent(k.seen, idem.TraceEventData{Event: event, Attempt: k.attempts, Cause: cause})
	}
}

func (k *keyless) tellEnd(err error) {
	if k.outcome == idem.OutcomeFailed && err == nil {
		err = errForgotten
	}
	k.config.Observer.TraceEnd(k.seen, idem.TraceEndData{
		Outcome: k.outcome, Err: err, Cause: idem.CauseOf(err), Duration: time.Since(k.started), Attempts: k.attempts,
	})
}
