package idemhttp

import (
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// keyStatus is the JSON answer of Middleware.Status.
type keyStatus struct {
	State       idem.State `json:"state"`
	ExecutionID string     `json:"execution_id,omitempty"`
	Since       time.Time  `json:"since,omitzero"`
	CompletedAt time.Time  `json:"completed_at,omitzero"`
	ExpiresAt   time.Time  `json:"expires_at,omitzero"`
}

// Status returns a handler that reports the state of a key, for a client that got a 202 or no
// answer. The request is a GET with the key in the usual header. Config.Scope is called for this
// GET and must return the scope of the original request. So Scope cannot use the method or route of
// its request as the name of the operation.
//
// The answer is JSON: state ("processing", "completed", or "failed" if it was rejected),
// execution_id, since, completed_at and expires_at. An unused key is a problem with status 404. The
// JSON does not contain the recorded answer.
func (m *Middleware) Status() http.Handler {
	return m.reporting(TypeNoSuchKey, func(x *exchange, scope string) (bool, *failure) {
		key, err := x.sentKey()
		if err != nil {
			return false, &failure{inKey, err}
		}
		found, err := idem.Lookup(x.r.Context(), m.pool, scope, key)
		if err != nil {
			return false, &failure{inEngine, err}
		}
		if found.State == idem.StateUnused {
			return false, nil
		}
		sendStatus(x.w, http.StatusOK, 0, keyStatus{found.State, found.ExecutionID, found.Since, found.CompletedAt, found.ExpiresAt})
		return true, nil
	})
}

// reporting returns a handler for GET and HEAD. The handler calls the function answer, which sends
// the status. If answer finds nothing, the handler sends the problem whose type is the argument
// missing.
func (m *Middleware) reporting(missing string, answer func(x *exchange, scope string) (found bool, f *failure)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			m.config.Render(w, r, m.newProblem(TypeGetOnly))
			return
		}
		x := m.start(w, r, nil)
		defer x.end()
		found := false
		scope, f := x.scope()
		if f == nil {
			found, f = answer(x, scope)
		}
		switch {
		case f != nil:
			m.refuse(w, r, f)
		case !found:
			m.config.Render(w, r, m.newProblem(missing))
		}
	})
}

func sendStatus(w http.ResponseWriter, code int, retryAfter time.Duration, status any) {
	w.Header().Set("Cache-Control", "no-store")
	sendJSON(w, code, "application/json", retryAfter, status)
}
