package idemhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// operationStatus tells a client how far an operation is.
type operationStatus struct {
	ID         string       `json:"operation_id"`
	Name       string       `json:"name"`
	State      string       `json:"state"`
	Undoing    bool         `json:"undoing,omitempty"`
	Step       string       `json:"step,omitempty"` // the one under way, or waited for
	Since      time.Time    `json:"since,omitzero"`
	Attempts   int          `json:"attempts,omitempty"`
	WaitsFor   string       `json:"waits_for,omitempty"`
	WaitsUntil time.Time    `json:"waits_until,omitzero"`
	Reason     string       `json:"reason,omitempty"`
	Steps      []stepStatus `json:"steps"`
	retryAfter time.Duration
	hash       idem.Hash
	scope      string
}

type stepStatus struct {
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	Outcome    string    `json:"outcome"`
	RecordedAt time.Time `json:"recorded_at"`
}

// statusLimit bounds the look at an operation whose request has run out of time.
const statusLimit = time.Second

// claim is the key that a request is to be executed under, and what it is a key of.
type claim struct {
	scope, key string
	hash       idem.Hash
}

// held returns the status of the operation that has the key, nil if none has it, and idem.ErrMismatch if it belongs to another
// request.
func (h *OperationHandler) held(r *http.Request, c *claim) (*operationStatus, error) {
	ctx := r.Context()
	if ctx.Err() != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusLimit)
		defer cancel()
		ctx = bounded
	}
	entry, err := idem.Lookup(ctx, h.pool, c.scope, c.key)
	if err != nil || entry.State != idem.StateProcessing || entry.OperationID == "" {
		return nil, err
	}
	status, err := h.load(ctx, entry.OperationID)
	if err == nil && status != nil && status.hash != c.hash {
		return nil, idem.ErrMismatch
	}
	return status, err
}

// load reads the status of an operation, nil if there is none of that id.
func (h *OperationHandler) load(ctx context.Context, id string) (*operationStatus, error) {
	engine := txn.Engine{Pool: h.pool, Limits: txn.DefaultLimits}
	show, steps := store.ShowOperation{OperationID: id}, store.ListSteps{OperationID: id}
	if err := engine.Query(ctx, &show, &steps); err != nil || !show.Found {
		return nil, err
	}
	status := &operationStatus{
		ID: id, Name: show.Name, State: string(show.State), Steps: []stepStatus{}, scope: show.Scope, hash: show.Hash,
	}
	for _, s := range steps.Steps {
		status.Steps = append(status.Steps, stepStatus{string(s.Kind), s.Name, string(s.Outcome), s.RecordedAt})
	}
	if show.State != store.OperationRunning && show.State != store.OperationParked {
		return status, nil
	}
	status.Undoing, status.Step, status.Since, status.Attempts = show.Undoing, show.Step, show.Since, show.Attempts
	status.retryAfter = time.Second
	switch pause := show.WakeAt.Sub(show.LoadedAt); {
	case show.State == store.OperationParked:
		status.retryAfter = time.Minute
		if h.reasons {
			status.Reason = show.Reason
		}
	case pause > 0:
		status.WaitsFor, status.WaitsUntil = show.Step, show.WakeAt
		status.retryAfter = min(max(pause, time.Second), time.Minute)
	}
	return status, nil
}

// accept answers that the operation goes on, and where to ask for it.
func (h *OperationHandler) accept(w http.ResponseWriter, status *operationStatus) {
	w.Header().Set("Location", strings.Replace(h.statusPath, "{id}", status.ID, 1))
	sendOperation(w, http.StatusAccepted, status)
}

func sendOperation(w http.ResponseWriter, code int, status *operationStatus) {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // no field can fail
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if status.retryAfter > 0 {
		header.Set("Retry-After", wholeSeconds(status.retryAfter))
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // if this fails, nobody is there to be told
}

// Status returns a handler that tells how far an operation is. It belongs to "GET " and the StatusPath, in an http.ServeMux or
// wherever the request has a path value id. Config.Scope is asked for it as for the operation itself, and has to return the same
// scope: for another one the operation is not there, and the answer is 404.
//
// The answer is JSON: operation_id, name, state (running, parked, completed, failed or undone), step, since, attempts, waits_for and
// waits_until, undoing, and steps, with the kind, the name, the outcome and the recorded_at of each. Nothing of its key, its
// input, its values and its answer is told: the answer is for who repeats the request with its key.
func (h *OperationHandler) Status() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.config.Render(w, r, getOnly())
			return
		}
		status, f := h.ofCaller(w, r)
		switch {
		case f != nil:
			h.refuse(w, r, f)
		case status == nil:
			h.config.Render(w, r, noSuchOperation())
		default:
			sendOperation(w, http.StatusOK, status)
		}
	})
}

// ofCaller returns the status of the operation that a request asks for, nil if there is none or it is another caller's.
func (h *OperationHandler) ofCaller(w http.ResponseWriter, r *http.Request) (*operationStatus, *failure) {
	x := h.start(w, r, nil)
	defer x.end()
	scope, f := x.scope()
	if f != nil {
		return nil, f
	}
	var id pgtype.UUID
	if id.Scan(r.PathValue("id")) != nil {
		return nil, nil
	}
	status, err := h.load(r.Context(), id.String())
	if err != nil {
		return nil, &failure{inEngine, err}
	}
	if status == nil || status.scope != scope {
		return nil, nil
	}
	return status, nil
}

// Shutdown waits for the operations that go on without a request. It comes behind http.Server.Shutdown. At the end of ctx it has
// this process let go of them, for others to go on with, waits for that, and returns the error of ctx. A Call under way is
// ended then: one that is Once is parked.
func (h *OperationHandler) Shutdown(ctx context.Context) error { return h.runs.drain(ctx) }
