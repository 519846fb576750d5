package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/display"
)

// ServeHTTP runs the operation and answers the request. Every request needs a key, whatever its
// method.
func (h *OperationHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.start(w, r, nil)
	defer x.end()
	if f := h.answer(x); f != nil {
		h.refuse(w, r, f)
	}
}

// answer starts or finds the operation, and answers the request. If it returns a failure, nothing
// has been sent to the client.
func (h *OperationHandler) answer(x *exchange) *failure {
	c, f := x.claim(x.r.Context(), x.sentKey)
	if f != nil {
		return f
	}
	p, err := h.prepare(x.hookRequest())
	if err != nil {
		return &failure{inInput, err}
	}
	run := h.runs.begin(x.r.Context(), h.maxRunning, func(ctx context.Context) (idem.Result, error) { return p.do(ctx, c) })
	if run == nil {
		return h.startForWorker(x, p, c)
	}
	return h.await(x, run, c)
}

var errFull = errors.New("idemhttp: this process runs OperationConfig.MaxRunning operations, and the Operation has no Start")

// startForWorker stores the operation for a Worker to run, unless it is stored already, and answers
// 202. If the operation has already ended, startForWorker sends the recorded answer.
func (h *OperationHandler) startForWorker(x *exchange, p *prepared, c *claim) *failure {
	for started := false; ; started = true {
		status, err := h.statusOf(x.r, c)
		switch {
		case err != nil:
			return &failure{inEngine, err}
		case status != nil:
			h.accept(x.w, status)
			return nil
		case started: // the operation has already ended, so Do returns a replay
			result, err := p.do(x.r.Context(), c)
			return h.sendResult(x, &run{result: result, err: err}, c)
		case p.start == nil:
			return &failure{inEngine, errFull}
		}
		err = pgx.BeginFunc(x.r.Context(), h.pool, func(tx pgx.Tx) error { return p.start(x.r.Context(), tx, c) })
		if err != nil {
			return &failure{inEngine, err}
		}
	}
}

// await waits for the end of the run and sends its result. After Patience, or when the context of
// the request ends, await answers 202, but not before the operation is stored.
func (h *OperationHandler) await(x *exchange, run *run, c *claim) *failure {
	select {
	case <-run.ended:
		return h.sendResult(x, run, c)
	case <-time.After(h.patience):
	case <-x.r.Context().Done():
	}
	const minPause, maxPause = 100 * time.Millisecond, time.Second
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		switch status, err := h.statusOf(x.r, c); {
		case errors.Is(err, idem.ErrMismatch):
			return &failure{inEngine, err}
		case err == nil && status != nil:
			h.accept(x.w, status)
			return nil
		case x.r.Context().Err() != nil:
			return &failure{inEngine, &idem.InProgressError{Key: display.Key(c.key), RetryAfter: time.Second}}
		}
		select {
		case <-run.ended:
			return h.sendResult(x, run, c)
		case <-time.After(pause):
		case <-x.r.Context().Done():
		}
	}
}

// sendResult answers with the result of a run. If the run failed, but the operation is stored and
// in progress, the answer is 202.
func (h *OperationHandler) sendResult(x *exchange, run *run, c *claim) *failure {
	err := run.err
	switch {
	case err == nil && run.result.Replayed:
		return x.replay(run.result)
	case err == nil:
		send(x.w, run.result.Response)
		return nil
	case !errors.Is(err, idem.ErrMismatch):
		status, lookupErr := h.statusOf(x.r, c)
		switch {
		case errors.Is(lookupErr, idem.ErrMismatch):
			return &failure{inEngine, lookupErr}
		case lookupErr == nil && status != nil: // the operation is stored, so a worker continues it
			if !errors.Is(err, idem.ErrInProgress) {
				h.config.Logger.WarnContext(x.r.Context(), "running an operation failed; a worker continues it", "operation", status.ID, "name", status.Name, "error", err)
			}
			h.accept(x.w, status)
			return nil
		}
	}
	if _, isProblem := problemIn(err); isProblem {
		return &failure{inOperation, err}
	}
	return &failure{inEngine, err}
}
