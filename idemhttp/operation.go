package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

// Operation is work of several steps: an *operation.Definition.
type Operation[In any] interface {
	Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error)
}

// OperationConfig says how requests run an operation. StatusPath has to be set.
type OperationConfig[In any] struct {
	// Input makes the input of the operation out of a request. It has a copy of the request, and the whole body. An error is 500, or
	// the *Problem that it is. The default takes the body as JSON, and answers 400 if it is none.
	Input func(r *http.Request) (In, error)

	// StatusPath is where clients ask how far an operation is, with {id} in the place of its id: "/operations/{id}". It is sent as
	// the Location of a 202. Register OperationHandler.Status there.
	StatusPath string

	// Patience is for how long a request waits for the end of the operation, before it is answered 202. The default is 2 seconds.
	Patience time.Duration

	// Reasons tells clients why an operation is parked. A reason names steps, and may quote the error of an undo. By default only the
	// log and the tools of the operator have it.
	Reasons bool
}

const defaultPatience = 2 * time.Second

// OperationHandler answers requests by an operation. It is safe for concurrent use.
type OperationHandler struct {
	*Middleware
	statusPath string
	patience   time.Duration
	reasons    bool
	prepare    func(r *http.Request) (func(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error), error)
	runs       runs
}

// Operate returns a handler whose requests run the operation, under the key, the scope and the fingerprint that the Config of m says.
// It is an error if the config has no StatusPath with {id} in it.
//
// A request is answered by the operation if that ends within config.Patience: by the answer of its function, or by the replay of
// it, exactly as it is recorded. Otherwise the answer is 202, with the status of the operation as its body and the Location of
// that, as soon as the operation is durable: a 202 is never lost. What refuses a request elsewhere refuses it here. Where something
// fails after the operation was begun the answer is 202 as well, because it goes on.
//
// The operation does not end with its request: the process goes on with it while the client waits for nothing any more, or has
// gone. [OperationHandler.Shutdown] waits for what goes on. If the process dies somebody else goes on: run an operation.Worker.
func Operate[In any](m *Middleware, operation Operation[In], config OperationConfig[In]) (*OperationHandler, error) {
	fill(&config.Patience, defaultPatience)
	switch {
	case m == nil || operation == nil:
		return nil, errors.New("idemhttp: Operate: the Middleware or the operation is nil")
	case !strings.HasPrefix(config.StatusPath, "/") || strings.Count(config.StatusPath, "{id}") != 1:
		return nil, fmt.Errorf("idemhttp: OperationConfig.StatusPath: %q is not a path with one {id} in it", config.StatusPath)
	case config.Patience < 0:
		return nil, fmt.Errorf("idemhttp: OperationConfig.Patience: %v is negative", config.Patience)
	}
	if config.Input == nil {
		config.Input = inputFromJSON[In]
	}
	h := &OperationHandler{Middleware: m, statusPath: config.StatusPath, patience: config.Patience, reasons: config.Reasons}
	h.prepare = func(r *http.Request) (func(context.Context, string, string, idem.Hash) (idem.Result, error), error) {
		in, err := config.Input(r)
		return func(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
			return operation.Do(ctx, m.pool, scope, key, hash, in, m.options...)
		}, err
	}
	return h, nil
}

func inputFromJSON[In any](r *http.Request) (in In, err error) {
	decoder := json.NewDecoder(r.Body)
	if err = decoder.Decode(&in); err == nil && decoder.More() {
		err = errors.New("there is more than one document")
	}
	if err != nil {
		return in, invalidInput()
	}
	return in, nil
}

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
	if attemptOf(x.r.Context()) != nil {
		return &failure{inEngine, errNested}
	}
	scope, f := x.scope()
	if f != nil {
		return f
	}
	key, err := keyheader.Parse(x.r.Header[h.config.Header])
	if err != nil {
		return &failure{inKey, err}
	}
	body, err := x.body.whole()
	if err != nil {
		return &failure{inBody, err}
	}
	hash, err := h.config.Fingerprint(x.asked(), body)
	if err != nil {
		return &failure{inFingerprint, err}
	}
	do, err := h.prepare(x.asked())
	if err != nil {
		return &failure{inInput, err}
	}
	run := h.runs.begin(x.r.Context(), func(ctx context.Context) (idem.Result, error) { return do(ctx, scope, key, hash) })
	return h.await(x, run, &claim{scope, key, hash})
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
			return &failure{inEngine, &idem.InProgressError{RetryAfter: time.Second}}
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
