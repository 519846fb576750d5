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

// ServeHTTP answers a request by the operation. Every method needs a key.
func (h *OperationHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.start(w, r, nil)
	defer x.end()
	if f := h.answer(x); f != nil {
		h.refuse(w, r, f)
	}
}

// answer starts the operation, or finds it, and sends what there is to say. A failure means that nothing has been sent.
func (h *OperationHandler) answer(x *exchange) *failure {
	c, f := x.claim(x.r.Context(), x.sentKey)
	if f != nil {
		return f
	}
	p, err := h.prepare(x.asked())
	if err != nil {
		return &failure{inInput, err}
	}
	run := h.runs.begin(x.r.Context(), h.most, func(ctx context.Context) (idem.Result, error) { return p.do(ctx, c) })
	if run == nil {
		return h.leave(x, p, c)
	}
	return h.await(x, run, c)
}

var errFull = errors.New("idemhttp: this process works on as many operations as it may")

// leave begins the operation for a Worker to do, or finds it.
func (h *OperationHandler) leave(x *exchange, p *prepared, c *claim) *failure {
	for begun := false; ; begun = true {
		status, err := h.held(x.r, c)
		switch {
		case err != nil:
			return &failure{inEngine, err}
		case status != nil:
			h.accept(x.w, status)
			return nil
		case begun: // it has ended, so this is a replay
			result, err := p.do(x.r.Context(), c)
			return h.tell(x, &run{result: result, err: err}, c)
		case p.start == nil:
			return &failure{inEngine, errFull}
		}
		err = pgx.BeginFunc(x.r.Context(), h.pool, func(tx pgx.Tx) error { return p.start(x.r.Context(), tx, c) })
		if err != nil {
			return &failure{inEngine, err}
		}
	}
}

// await waits for the end of a run, or until it may be left to itself.
func (h *OperationHandler) await(x *exchange, run *run, c *claim) *failure {
	select {
	case <-run.ended:
		return h.tell(x, run, c)
	case <-time.After(h.patience):
	case <-x.r.Context().Done():
	}
	const look = 100 * time.Millisecond
	for pause := look; ; pause = min(2*pause, 10*look) {
		switch status, err := h.held(x.r, c); {
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
			return h.tell(x, run, c)
		case <-time.After(pause):
		case <-x.r.Context().Done():
		}
	}
}

// tell sends what a run has come to.
func (h *OperationHandler) tell(x *exchange, run *run, c *claim) *failure {
	err := run.err
	switch {
	case err == nil && run.result.Replayed:
		return x.replay(run.result)
	case err == nil:
		send(x.w, run.result.Response)
		return nil
	case !errors.Is(err, idem.ErrMismatch):
		status, unknown := h.held(x.r, c)
		switch {
		case errors.Is(unknown, idem.ErrMismatch):
			return &failure{inEngine, unknown}
		case unknown == nil && status != nil: // it was begun, so it goes on
			if !errors.Is(err, idem.ErrInProgress) {
				h.config.Logger.WarnContext(x.r.Context(), "an operation does not get on", "operation", status.ID, "name", status.Name, "error", err)
			}
			h.accept(x.w, status)
			return nil
		}
	}
	if _, said := problemIn(err); said {
		return &failure{inOperation, err}
	}
	return &failure{inEngine, err}
}
