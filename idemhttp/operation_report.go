package idemhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// accept answers 202 with the status of the operation. The header Location is the path of the
// status.
func (h *OperationHandler) accept(w http.ResponseWriter, status *operationStatus) {
	w.Header().Set("Location", strings.Replace(h.statusPath, "{id}", status.ID, 1))
	sendStatus(w, http.StatusAccepted, status.retryAfter, status)
}

// Status returns a handler that reports the status of an operation. Register the handler for GET on
// StatusPath, in an http.ServeMux or another router that sets the path value id. Config.Scope is
// called for this GET too, and must return the scope of the operation. For any other scope the
// answer is 404.
//
// The answer is JSON: operation_id, name, state (running, parked, completed, failed or undone),
// step, since, attempts, waits_for, waits_until, undoing, and steps, each with kind, name, outcome
// and recorded_at. If the operation has ended with an answer, the JSON also has result: the status,
// header and body of the answer, with body_base64 for a body that is not JSON. Config.Authorize is
// called as before a replay; if it returns an error, result is left out. The JSON never has the
// key, the input or the values of steps.
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

// Shutdown waits for the operations that this process still runs, even if their requests have
// ended. Call it after http.Server.Shutdown. When ctx ends, Shutdown cancels the operations, so
// that other processes can resume them. It then waits until they have returned, and returns the
// error of ctx. Canceling an operation interrupts a Call in progress. If the policy of the Call is
// Once, the outcome of the Call is then in doubt, and the operation is parked.
func (h *OperationHandler) Shutdown(ctx context.Context) error { return h.runs.drain(ctx) }
