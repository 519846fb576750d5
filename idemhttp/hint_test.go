package idemhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
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

func TestAnswered_FindsRecentKeys(t *testing.T) {
	t.Parallel()
	a := newAnswered()
	name := a.idOf("scope", "key")
	if a.has(name) {
		t.Error("it remembers what it was not told")
	}
	a.add(name)
	if !a.has(a.idOf("scope", "key")) {
		t.Error("it has forgotten at once")
	}
	for _, other := range [][2]string{{"scope", "key2"}, {"scop", "ekey"}, {"scopekey", ""}, {"", "scopekey"}, {"key", "scope"}} {
		if a.has(a.idOf(other[0], other[1])) {
			t.Errorf("it takes %q for it", other)
		}
	}
	if b := newAnswered(); b.idOf("scope", "key") == name {
		t.Error("its hash is not its own")
	}
}

// Of as many keys as a quarter of the slots, most are found; never more than the number of slots.
func TestAnswered_IsBounded(t *testing.T) {
	t.Parallel()
	a := newAnswered()
	remembered := func(keys int) (n int) {
		for i := range keys {
			if a.has(a.idOf("scope", strconv.Itoa(i))) {
				n++
			}
		}
		return n
	}
	for i := range answeredSlots / 4 {
		a.add(a.idOf("scope", strconv.Itoa(i)))
	}
	if n := remembered(answeredSlots / 4); n < answeredSlots/5 {
		t.Errorf("%d of %d are remembered", n, answeredSlots/4)
	}
	for i := range 10 * answeredSlots {
		a.add(a.idOf("scope", strconv.Itoa(i)))
	}
	if n := remembered(10 * answeredSlots); n > answeredSlots || n < answeredSlots/2 {
		t.Errorf("%d are remembered, and there are %d slots", n, answeredSlots)
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

func TestAnswered_DoesNotAllocate(t *testing.T) {
	a := newAnswered()
	r := &http.Request{Header: http.Header{keyheader.Attempt: {"1"}}}
	if n := testing.AllocsPerRun(1000, func() { hint(a, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// hint is what a request pays.
func hint(a *answered, r *http.Request) bool {
	name := a.idOf("4:acme11:POST /orders", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	found := likelyReplay(r) || a.has(name)
	a.add(name)
	return found
}

func BenchmarkReplayHint(b *testing.B) {
	a := newAnswered()
	r := &http.Request{Header: http.Header{keyheader.Attempt: {"1"}}}
	b.ReportAllocs()
	for b.Loop() {
		hint(a, r)
	}
}
