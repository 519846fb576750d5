package idemhttp

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// keyStatus is the answer of Middleware.Status.
type keyStatus struct {
	State       idem.State `json:"state"`
	ExecutionID string     `json:"execution_id,omitempty"`
	Since       time.Time  `json:"since,omitzero"`
	CompletedAt time.Time  `json:"completed_at,omitzero"`
	ExpiresAt   time.Time  `json:"expires_at,omitzero"`
}

// Status returns a handler that reports the state of a key, for a client that got a 202 or no
// answer. The request is a GET with the key in the usual header. Config.Scope is called for it and
// must return the scope of the original request. So Scope must not derive the name of the operation
// from the method or route alone.
//
// The answer is JSON: state ("processing", "completed", or "failed" if it was rejected),
// execution_id, since, completed_at and expires_at. An unused key is a problem with status 404. The
// recorded answer is not part of it.
func (m *Middleware) Status() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			m.config.Render(w, r, getOnly())
			return
		}
		found, f := m.lookup(w, r)
		switch {
		case f != nil:
			m.refuse(w, r, f)
		case found.State == idem.StateUnused:
			m.config.Render(w, r, noSuchKey())
		default:
			sendStatus(w, keyStatus{found.State, found.ExecutionID, found.Since, found.CompletedAt, found.ExpiresAt})
		}
	})
}

func (m *Middleware) lookup(w http.ResponseWriter, r *http.Request) (idem.Entry, *failure) {
	x := m.start(w, r, nil)
	defer x.end()
	scope, f := x.scope()
	if f != nil {
		return idem.Entry{}, f
	}
	key, err := x.sentKey()
	if err != nil {
		return idem.Entry{}, &failure{inKey, err}
	}
	found, err := idem.Lookup(r.Context(), m.pool, scope, key)
	if err != nil {
		return idem.Entry{}, &failure{inEngine, err}
	}
	return found, nil
}

func sendStatus(w http.ResponseWriter, status keyStatus) {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // cannot happen: every field can be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}
