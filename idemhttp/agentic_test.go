package idemhttp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// The test checks the rules of section 6 of the protocol, one by one.
func TestACPConfig_FollowsTheProtocol(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) {
		acp := idemhttp.ACPConfig()
		acp.Logger, acp.Wait = c.Logger, -1
		acp.Scope = func(r *http.Request) (string, error) {
			return idem.Scope(r.Header.Get("Authorization"), r.URL.Path), nil
		}
		*c = acp
	})
	order := m.Wrap(http.HandlerFunc(s.order))
	at := func(path string) edit { return func(r *http.Request) { r.URL.Path, r.RequestURI = path, path } }

	first, again := ask(order), ask(order)
	if again.Header.Get("Idempotent-Replayed") != "true" || first.StatusCode != again.StatusCode || body(t, first) != body(t, again) {
		t.Errorf("%d %v %s", again.StatusCode, again.Header, body(t, again))
	}
	for name, answer := range map[string]*http.Response{
		"first": first, "replay": again, "conflict": ask(order, withBody(`{"sku":"pot"}`)), "invalid": ask(order, withBody(`{`)),
	} {
		if got := answer.Header.Values("Idempotency-Key"); !cmp.Equal(got, []string{"k"}) {
			t.Errorf("%s: the key comes back as %q", name, got)
		}
	}
	if other := ask(order, at("/other")); other.Header.Get("Idempotent-Replayed") != "" || other.StatusCode != first.StatusCode {
		t.Errorf("the same key on another path: %d %v", other.StatusCode, other.Header)
	}
	s.want(2, 2)

	wantACP := func(answer *http.Response, status int, code string) {
		t.Helper()
		var said map[string]string
		if err := json.NewDecoder(strings.NewReader(body(t, answer))).Decode(&said); err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != status || said["type"] != "invalid_request" || said["code"] != code || said["message"] == "" || len(said) != 3 {
			t.Errorf("%d %v, want %d %s", answer.StatusCode, said, status, code)
		}
	}
	wantACP(ask(order, withoutKey()), http.StatusBadRequest, "idempotency_key_required")
	wantACP(ask(order, withBody(`{"sku":"pot"}`)), http.StatusUnprocessableEntity, "idempotency_conflict")

	begun, release := make(chan struct{}), make(chan struct{})
	slow := m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	}))
	ended := make(chan *http.Response)
	go func() { ended <- ask(slow, withKey("slow")) }()
	<-begun
	busy := ask(slow, withKey("slow"))
	if busy.Header.Get("Retry-After") == "" {
		t.Error("it is not said when to come again")
	}
	wantACP(busy, http.StatusConflict, "idempotency_in_flight")
	release <- struct{}{}
	if failed := <-ended; failed.StatusCode != http.StatusInternalServerError || failed.Header.Get("Idempotency-Key") != "slow" {
		t.Errorf("%d %v", failed.StatusCode, failed.Header)
	}
	if fresh := ask(order, withKey("slow"), withBody(teapot)); fresh.StatusCode != first.StatusCode || fresh.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after a 500: %d %v", fresh.StatusCode, fresh.Header)
	}
}
