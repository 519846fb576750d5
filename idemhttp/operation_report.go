package idemhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// accept answers 202 with the status of the operation and its Location.
func (h *OperationHandler) accept(w http.ResponseWriter, status *operationStatus) {
	w.Header().Set("Location", strings.Replace(h.statusPath, "{id}", status.ID, 1))
	sendStatus(w, http.StatusAccepted, status.retryAfter, status)
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
	return h.reporting(TypeNoSuchOperation, func(x *exchange, scope string) (bool, *failure) {
		var id pgtype.UUID
		if id.Scan(x.r.PathValue("id")) != nil {
			return false, nil
		}
		status, err := h.load(x.r.Context(), id.String())
		if err == nil && status != nil && status.scope == scope {
			err = h.addResult(x, status)
		}
		switch {
		case err != nil:
			return false, &failure{inEngine, err}
		case status == nil || status.scope != scope:
			return false, nil
		}
		sendStatus(x.w, http.StatusOK, status.retryAfter, status)
		return true, nil
	})
}

// Shutdown waits for the operations that are running without a request. Call it after
// http.Server.Shutdown. When ctx ends, Shutdown cancels them, so that other processes can resume
// them, waits until they have returned, and returns the error of ctx. This interrupts a Call in
// progress. A Call with the policy Once is then in doubt, and its operation is parked.
func (h *OperationHandler) Shutdown(ctx context.Context) error { return h.runs.drain(ctx) }
