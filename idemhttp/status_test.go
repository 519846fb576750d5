package idemhttp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/idemhttp"
)

func statusOf(t *testing.T, m *idemhttp.Middleware, edits ...edit) (state string, members map[string]string) {
	t.Helper()
	answer := ask(m.Status(), append([]edit{withMethod(http.MethodGet), withTarget("/orders/status")}, edits...)...)
	wantStatus(t, answer, http.StatusOK)
	if got := answer.Header.Get("Content-Type"); got != "application/json" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", answer.Header)
	}
	if err := json.Unmarshal([]byte(body(t, answer)), &members); err != nil {
		t.Fatal(err)
	}
	return members["state"], members
}

// A handler that starts long work answers 202 with a Location, where the client asks with its key.
func TestStatus_ReportsTheStateOfAKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	get := []edit{withMethod(http.MethodGet)}
	wantProblem(t, ask(m.Status(), get...), http.StatusNotFound, "no-such-key")

	release, done := s.holding(m)
	state, members := statusOf(t, m)
	if state != "processing" || members["since"] == "" || members["expires_at"] != "" {
		t.Errorf("in the handler: %v", members)
	}
	close(release)
	<-done
	state, members = statusOf(t, m, withKey(`"k"`))
	if state != "completed" || members["execution_id"] == "" {
		t.Errorf("after the commit: %v", members)
	}
	var times []time.Time
	for _, name := range []string{"since", "completed_at", "expires_at"} {
		at, err := time.Parse(time.RFC3339Nano, members[name])
		if err != nil {
			t.Error(name, err)
		}
		times = append(times, at)
	}
	if times[0].After(times[1]) || times[2].Sub(times[1]) < 24*time.Hour {
		t.Errorf("%v", times)
	}

	ask(m.Wrap(http.NotFoundHandler()), withKey("rejected"))
	if state, _ := statusOf(t, m, withKey("rejected")); state != "failed" {
		t.Errorf("rejected: %s", state)
	}
}

func TestStatus_NeedsTheSameScope(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	wantStatus(t, ask(m.Wrap(http.HandlerFunc(s.order))), http.StatusCreated)
	get := withMethod(http.MethodGet)
	wantProblem(t, ask(m.Status(), get, withTenant("u")), http.StatusNotFound, "no-such-key")
	wantStatus(t, ask(m.Status(), get, withHeader("Authorization")), http.StatusUnauthorized)
	wantProblem(t, ask(m.Status(), get, withoutKey()), http.StatusBadRequest, "missing-key")
	wantProblem(t, ask(m.Status(), get, withKey("a,b")), http.StatusBadRequest, "invalid-key")
	wantProblem(t, ask(m.Status(), get, withKey(strings.Repeat("k", 256))), http.StatusBadRequest, "invalid-key")
	if answer := ask(m.Status()); answer.Header.Get("Allow") != "GET, HEAD" {
		wantProblem(t, answer, http.StatusMethodNotAllowed, "get-only")
		t.Error(answer.Header)
	}
}
