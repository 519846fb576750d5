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

// errUnknownWithoutKey means that the COMMIT of a request without a key was not acknowledged. No
// record shows whether the transaction was committed.
var errUnknownWithoutKey = errors.New("idemhttp: COMMIT was not acknowledged, and the request had no key; check its writes before repeating it")

// runKeyless runs the handler in a transaction that records nothing. It runs the handler again
// after a serialization failure or a deadlock.
func (x *exchange) runKeyless(ctx context.Context, scope string) error {
	run := &keyless{exchange: x, started: time.Now(), outcome: idem.OutcomePanicked}
	if x.config.Observer == nil {
		return run.do(ctx)
	}
	run.observed = x.config.Observer.TraceStart(ctx, idem.TraceStartData{Name: x.config.Name, Scope: scope})
	var err error
	defer func() { run.observeEnd(err) }()
	err = run.do(ctx)
	run.outcome = run.outcomeOf(err)
	return err
}

// keyless is the processing of a request without a key. It calls the Observer as idem.Do does for a
// request with a key.
type keyless struct {
	*exchange
	observed context.Context // the context that TraceStart returned
	started  time.Time
	attempts int
	decision Decision
	outcome  idem.Outcome
}

func (k *keyless) do(ctx context.Context) error {
	engine := txn.Engine{Pool: k.pool, Source: k.source, Options: k.config.TxOptions, Limits: txn.DefaultLimits}
	err := engine.Do(ctx, k.config.Retries, func(tx pgx.Tx) (undo bool, err error) {
		if k.attempts > 0 {
			k.observe(idem.EventRetried, idem.CauseConflict) // the engine runs fn again only after a conflict
		}
		k.attempts++
		k.observe(idem.EventExecuting, idem.CauseNone)
		k.decision, err = k.run(tx)
		if k.decision == Commit && err == nil {
			k.observe(idem.EventRecording, idem.CauseNone)
		}
		return k.decision != Commit, err
	})
	var unknown *txn.UnknownError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %w", errUnknownWithoutKey, unknown.Err)
	}
	return err
}

// outcomeOf returns the outcome that idem.Do would report if the request had a key. The decision
// Forget counts as OutcomeFailed, because runKeyed returns an error for Forget.
func (k *keyless) outcomeOf(err error) idem.Outcome {
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

func (k *keyless) observe(event idem.Event, cause idem.Cause) {
	if k.config.Observer != nil {
		k.config.Observer.TraceEvent(k.observed, idem.TraceEventData{Event: event, Attempt: k.attempts, Cause: cause})
	}
}

func (k *keyless) observeEnd(err error) {
	if k.outcome == idem.OutcomeFailed && err == nil {
		err = errForgotten
	}
	k.config.Observer.TraceEnd(k.observed, idem.TraceEndData{
		Outcome: k.outcome, Err: err, Cause: idem.CauseOf(err), Duration: time.Since(k.started), Attempts: k.attempts,
	})
}
