package idemhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/keyheader"
)

func TestLikelyReplay_ByAttemptNumber(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []string
		want   bool
	}{
		{[]string{"2"}, true}, {[]string{"3"}, true}, {[]string{"10"}, true}, {[]string{"999999999999999"}, true},
		{nil, false}, {[]string{}, false}, {[]string{""}, false}, {[]string{"0"}, false}, {[]string{"1"}, false},
		{[]string{"02"}, false}, {[]string{"-2"}, false}, {[]string{"+2"}, false}, {[]string{" 2"}, false}, {[]string{"2 "}, false},
		{[]string{"2.0"}, false}, {[]string{"0x2"}, false}, {[]string{"2e1"}, false}, {[]string{"2;a"}, false}, {[]string{"two"}, false},
		{[]string{"²"}, false}, {[]string{"2/"}, false}, {[]string{"2:"}, false}, {[]string{"9999999999999999"}, false},
		{[]string{"2", "2"}, false}, {[]string{"2, 3"}, false},
	} {
		r := &http.Request{Header: http.Header{"Idempotency-Attempt": test.values}}
		if got := likelyReplay(r); got != test.want {
			t.Errorf("%q: %v", test.values, got)
		}
	}
}

// The hint is given if the client numbers its attempt, or if this middleware has answered the key.
func TestHint_IsGivenForLikelyReplays(t *testing.T) {
	t.Parallel()
	m := plainMiddleware(t)
	m.options, m.replayOptions = nil, []idem.Option{nil}
	var hinted bool
	m.do = func(_ context.Context, _ *pgxpool.Pool, _, key string, _ idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
		hinted = len(opts) == 1
		response, err := fn(nil)
		return idem.Result{Response: response}, err
	}
	status := http.StatusOK
	h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	ask := func(key, attempt string) bool {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Idempotency-Key", key)
		if attempt != "" {
			r.Header.Set(keyheader.Attempt, attempt)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		return hinted
	}
	for i, test := range []struct {
		key, attempt string
		status       int
		want         bool
	}{
		{"forgotten", "", 503, false}, {"forgotten", "", 503, false},
		{"forgotten", "2", 503, true},
		{"kept", "1", 200, false}, {"kept", "", 200, true}, {"another", "", 200, false},
	} {
		status = test.status
		if got := ask(test.key, test.attempt); got != test.want {
			t.Errorf("%d, %s: hinted %v", i, fmt.Sprint(test), got)
		}
	}
}
