package idemhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// All requests use one route with a wildcard. So the fingerprint depends on the request and not on
// the route.
func TestFingerprint_DistinguishesRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		edit edit
		same bool
	}{
		{"another path value", withTarget("/tenants/2/orders"), false},
		{"another query", withTarget("/tenants/1/orders?dry=1"), false},
		{"another method", withMethod(http.MethodPatch), false},
		{"another body", withBody(`{"sku":"samovar"}`), false},
		{"a number apart by one beyond 2^53", withBody(`{"n":9007199254740993}`), false},
		{"another media type", withHeader("Content-Type", "application/merge-patch+json"), false},
		{"no body", withBody(""), false},
		{"an encoded body", withHeader("Content-Encoding", "identity"), false},
		{"other spelling of the JSON", withBody(" {\"sku\" :\n\"teapot\"}"), true},
		{"parameters of the media type", withHeader("Content-Type", "Application/JSON; charset=utf-8"), true},
		{"other headers", withHeader("User-Agent", "another"), true},
		{"the absolute form", withTarget("http://example.com/tenants/1/orders"), true},
		{"the key in quotes", withKey(`"k"`), true},
		{"a rotated credential", withHeader("Authorization", "Bearer t:another"), true},
		{"another host", func(r *http.Request) { r.Host = "b.example.com" }, true},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			mux := http.NewServeMux()
			mux.Handle("/tenants/{tenant}/orders", s.middleware().Wrap(http.HandlerFunc(s.order)))
			first := ask(mux, withTarget("/tenants/1/orders"))
			if wantStatus(t, first, http.StatusCreated); first.Header.Get("Idempotency-Replayed") != "" {
				t.Error("the first answer is marked as a replay")
			}
			answer := ask(mux, withTarget("/tenants/1/orders"), test.edit)
			if test.same {
				wantReplay(t, first, answer)
			} else {
				wantProblem(t, answer, http.StatusUnprocessableEntity, "key-reused")
			}
			if got := answer.Header.Get("Location"); test.same && got != first.Header.Get("Location") {
				t.Errorf("Location %q", got)
			}
			s.want(1, 1)
		})
	}
}

// withTarget sets the fields that a server fills in from the request line.
func withTarget(target string) edit {
	return func(r *http.Request) {
		other := httptest.NewRequest(r.Method, target, nil)
		r.URL, r.RequestURI, r.Host = other.URL, other.RequestURI, other.Host
	}
}

func TestFingerprint_DoesNotDependOnTheRouter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	order := http.HandlerFunc(s.order)
	inner, outer, stripped := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	inner.Handle("POST /v1/orders", m.Wrap(order))
	outer.Handle("POST /v1/{what}", order)
	stripped.Handle("/orders", m.Wrap(order))
	first := ask(inner, withTarget("/v1/orders"))
	wantStatus(t, first, http.StatusCreated)
	wantReplay(t, first, ask(m.Wrap(outer), withTarget("/v1/orders")))
	wantReplay(t, first, ask(http.StripPrefix("/v1", stripped), withTarget("/v1/orders")))
	wantProblem(t, ask(http.StripPrefix("/v2", stripped), withTarget("/v2/orders")), http.StatusUnprocessableEntity, "key-reused")
	s.want(1, 1)
}

func TestFingerprint_Without(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.Without = []string{"/client_time", "/trace/id"} })
	h := m.Wrap(http.HandlerFunc(s.order))
	first := ask(h, withBody(`{"sku":"teapot","client_time":1,"trace":{"id":1}}`))
	wantStatus(t, first, http.StatusCreated)
	wantReplay(t, first, ask(h, withBody(`{"sku":"teapot","client_time":2,"trace":{"id":2}}`)))
	wantReplay(t, first, ask(h, withBody(`{"sku":"teapot","trace":{}}`)))
	wantProblem(t, ask(h, withBody(`{"sku":"teapot","trace":{"n":1}}`)), http.StatusUnprocessableEntity, "key-reused")
}

func TestFingerprint_CanBeReplaced(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) {
		c.Fingerprint = func(r *http.Request, body []byte) (idem.Hash, error) {
			if len(body) > 20 {
				return idem.Hash{}, &idemhttp.Problem{Type: "x/docs/http-reference.md#own", Status: http.StatusBadRequest}
			}
			return idem.HashBytes(body[:5]), nil
		}
	})
	h := m.Wrap(http.HandlerFunc(s.order))
	wantReplay(t, ask(h, withBody("12345a")), ask(h, withBody("12345b"), withTarget("/elsewhere")))
	wantProblem(t, ask(h, withBody(fmt.Sprintf("%21d", 1))), http.StatusBadRequest, "own")
}

// Databases store these hashes. After a change, a retry of an answered request would be a mismatch.
func TestFingerprint_IsFrozen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ contentType, body, want string }{
		{"application/json; charset=utf-8", teapot, frozenJSON},
		{"text/plain", teapot, frozenBytes},
		{"", "", frozenEmpty},
	} {
		r := request(withTarget("/orders?dry=1"), withHeader("Content-Type", test.contentType))
		got, err := idemhttp.DefaultFingerprint(r, []byte(test.body))
		if err != nil || got.String() != test.want {
			t.Errorf("%q %q: %s, %v, want %s", test.contentType, test.body, got, err, test.want)
		}
	}
}

const (
	frozenJSON  = "191bca90462a850bfdb9488d15c3d12216ae799b524ffa04bb2ad98daa5e9220"
	frozenBytes = "a5ff4784904ee813c6dfec753018c7ba1bc7c5799c5871cbc9b3e4686841f6bb"
	frozenEmpty = "42734cf800676833f1a641cf56f311ce14db8392950ef865d6abf733c5385a84"
)
