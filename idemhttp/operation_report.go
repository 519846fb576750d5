package idemhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

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
	_, _ = w.Write(append(body, '\n')) // if this fails, the client has gone
}

// Status returns a handler that tells how far an operation is. It belongs to "GET " and the StatusPath, in an http.ServeMux or
// wherever the request has a path value id. Config.Scope is asked for it as for the operation itself, and has to return the same
// scope: for another one the operation is not there, and the answer is 404.
//
// The answer is JSON: operation_id, name, state (running, parked, completed, failed or undone), step, since, attempts, waits_for and
// waits_until, undoing, and steps, with the kind, the name, the outcome and the recorded_at of each. If the operation has ended in
// an answer there is also result, with its status, its header and its body, or its body_base64 if that is not JSON. Config.Authorize
// is asked as before a replay; if it returns an error there is no result. The key, the input and the values are not shown.
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
	if err := h.addResult(x, status); err != nil {
		return nil, &failure{inEngine, err}
	}
	return status, nil
}

// Shutdown waits for the operations that go on without a request. It comes behind http.Server.Shutdown. At the end of ctx it has
// this process let go of them, for others to go on with, waits for that, and returns the error of ctx. A Call under way is
// ended then: one that is Once is parked.
func (h *OperationHandler) Shutdown(ctx context.Context) error { return h.runs.drain(ctx) }
