package idemhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// accept answers 202 with the status of the operation and its Location.
func (h *OperationHandler) accept(w http.ResponseWriter, status *operationStatus) {
	w.Header().Set("Location", strings.Replace(h.statusPath, "{id}", status.ID, 1))
	sendOperation(w, http.StatusAccepted, status)
}

func sendOperation(w http.ResponseWriter, code int, status *operationStatus) {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // cannot happen: every field can be encoded
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if status.retryAfter > 0 {
		header.Set("Retry-After", wholeSeconds(status.retryAfter))
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

// Status returns a handler that reports the status of an operation. Register it for GET on
// StatusPath, in an http.ServeMux or another router that sets the path value id. Config.Scope is
// called for this request too, and must return the scope of the operation. For any other scope the
// answer is 404.
//
// The answer is JSON: operation_id, name, state (running, parked, completed, failed or undone),
// step, since, attempts, waits_for, waits_until, undoing, and steps with the kind, name, outcome
// and recorded_at of each. An operation that has ended in an answer also has result: its status,
// its header and its body, or body_base64 if the body is not JSON. Config.Authorize is called as
// before a replay; if it returns an error, there is no result. The key, the input and the values
// are not shown.
func (h *OperationHandler) Status() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.config.Render(w, r, getOnly())
			return
		}
		status, f := h.lookupStatus(w, r)
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

// lookupStatus returns the status of the requested operation, or nil if there is none with this ID
// and scope.
func (h *OperationHandler) lookupStatus(w http.ResponseWriter, r *http.Request) (*operationStatus, *failure) {
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
	if err := h.addResult(x, status); err != nil {
		return nil, &failure{inEngine, err}
	}
	return status, nil
}

// Shutdown waits for the operations that are running without a request. Call it after
// http.Server.Shutdown. When ctx ends, Shutdown cancels them, so that other processes can resume
// them, waits until they have returned, and returns the error of ctx. This interrupts a Call in
// progress. A Call with the policy Once is then in doubt, and its operation is parked.
func (h *OperationHandler) Shutdown(ctx context.Context) error { return h.runs.drain(ctx) }
