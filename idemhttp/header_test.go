package idemhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemhttp"
)

func TestHeader_FieldsOfOneExchangeAreNotRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	once := []string{
		"Set-Cookie", "Authorization", "Authentication-Info", "Proxy-Authenticate", "Proxy-Authentication-Info", "Keep-Alive",
		"Proxy-Connection", "Te", "Upgrade", "Date", "Age", "Via", "Server-Timing", "Traceparent", "Request-Id", "X-Request-Id",
		"X-Correlation-Id", "Ratelimit-Remaining", "X-Ratelimit-Remaining", "X-Ratelimit-Resource", "Ratelimit-Used", "Proxy-Status", "Connection", "X-Named-By-Connection",
	}
	otherwise := strings.ToLower("Set-Cookie")
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range once {
			w.Header()[name] = []string{"once"}
		}
		w.Header()[otherwise] = []string{"spelled=otherwise"}
		w.Header()["Connection"] = []string{"close, x-named-by-connection"}
		w.Header().Set("X-Kept", "1")
	}))
	first, again := ask(h), ask(h)
	for _, name := range once {
		if first.Header[name] == nil {
			t.Errorf("%s did not reach the first caller", name)
		}
		if again.Header[name] != nil {
			t.Errorf("%s was replayed: %q", name, again.Header[name])
		}
	}
	if again.Header[otherwise] != nil || again.Header.Get("X-Kept") != "1" {
		t.Errorf("replayed %v", again.Header)
	}
	if n := s.count(`select count(*) from idem.records where header::text ilike '%cookie%' or header::text like '%once%'`); n != 0 {
		t.Error("it is in the database")
	}
}

func TestHeader_RecordHeader(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.RecordHeader = []string{"location", "Content-Type"} })
	h := m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("X-Internal", "1")
		_, _ = w.Write([]byte("{}"))
	}))
	first, again := ask(h), ask(h)
	if first.Header.Get("X-Internal") != "1" || again.Header.Get("X-Internal") != "" {
		t.Errorf("first %v, then %v", first.Header, again.Header)
	}
	if again.Header.Get("Location") != "/orders/1" || again.Header.Get("Content-Type") == "" {
		t.Errorf("replayed %v", again.Header)
	}
}

// Outer middleware sets its fields on every answer, so they are not recorded. A field that the
// handler has changed is recorded.
func TestHeader_OfOuterMiddlewareIsNotRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	inner := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Del("X-Frame-Options")
		w.Header().Set("X-Own", "1")
	}))
	requests := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		for name, value := range map[string]string{
			"X-Trace": string(rune('0' + requests)), "Vary": "Origin", "Content-Type": "application/json", "X-Frame-Options": "DENY",
		} {
			w.Header().Set(name, value)
		}
		inner.ServeHTTP(w, r)
	})
	for _, trace := range []string{"1", "2"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request())
		got := w.Result().Header
		for _, name := range []string{"Idempotency-Replayed", idemhttp.OriginalDateHeader, idemhttp.ExpiresHeader, "X-Frame-Options"} {
			if name == "X-Frame-Options" && len(got[name]) > 0 {
				t.Errorf("%s: %q", name, got[name])
			}
			got.Del(name)
		}
		want := http.Header{"X-Trace": {trace}, "Vary": {"Origin", "Accept"}, "Content-Type": {"text/plain"}, "X-Own": {"1"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if n := s.count(`select count(*) from idem.records where header ? 'X-Trace'`); n != 0 {
		t.Error("a field of outer middleware is in the database")
	}
}
