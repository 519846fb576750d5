package idemhttp_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/idem-go/idem/idemhttp"
)

func TestDecide_DefaultByStatus(t *testing.T) {
	t.Parallel()
	stripe := idemhttp.StripeConfig()
	never := func(int) idemhttp.Decision { return idemhttp.Forget }
	const commit, undo, forget = idemhttp.Commit, idemhttp.Undo, idemhttp.Forget
	for _, test := range []struct {
		name   string
		decide func(int) idemhttp.Decision
		want   map[int]idemhttp.Decision
	}{
		{"by default", nil, map[int]idemhttp.Decision{
			200: commit, 201: commit, 202: commit, 204: commit, 303: commit, 304: commit,
			400: undo, 401: forget, 402: undo, 403: undo, 404: undo, 410: undo, 412: undo, 422: undo, 408: forget, 423: forget, 424: undo, 428: undo,
			409: forget, 425: forget, 429: forget, 500: forget, 501: forget, 503: forget, 599: forget,
		}},
		{"like Stripe", stripe.Decide, map[int]idemhttp.Decision{200: commit, 400: undo, 401: forget, 402: undo, 404: undo, 408: undo, 423: undo, 409: forget, 429: forget, 500: undo, 503: undo}},
		{"as the config says", never, map[int]idemhttp.Decision{200: forget, 404: forget}},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			m := s.middleware(func(c *idemhttp.Config) { c.Decide = test.decide })
			orders, records := 0, 0
			for status, want := range test.want {
				h := m.Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
				key := withKey(fmt.Sprint("key-", status))
				runs := s.runs.Load()
				first, again := ask(h, key), ask(h, key)
				wantStatus(t, first, status)
				wantStatus(t, again, status)
				executions := int64(1)
				if want == forget {
					executions = 2
				}
				if n := s.runs.Load() - runs; n != executions || (again.Header.Get("Idempotency-Replayed") == "true") != (executions == 1) {
					t.Errorf("%d: the handler ran %d times, then %v", status, n, again.Header)
				}
				switch want {
				case commit:
					orders, records = orders+1, records+1
				case undo:
					records++
				}
				if s.want(orders, records); t.Failed() {
					t.Fatalf("after %d", status)
				}
			}
		})
	}
}

// A handler can still give a final answer after an SQL error.
func TestDecide_RejectionAfterAnSQLErrorIsRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, r *http.Request) {
		if _, err := idemhttp.Tx(r.Context()).Exec(r.Context(), "select 1/0"); err == nil {
			t.Error("no error")
		}
		http.Error(w, "this cannot be divided", http.StatusUnprocessableEntity)
	}))
	first := ask(h)
	wantStatus(t, first, http.StatusUnprocessableEntity)
	wantReplay(t, first, ask(h))
	s.want(0, 1)
}

func TestDecide_SuccessAfterAnIgnoredSQLErrorIsNotSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.Optional = true })
	h := m.Wrap(s.answering(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idemhttp.Tx(r.Context()).Exec(r.Context(), "select 1/0")
		w.WriteHeader(http.StatusCreated)
	}))
	wantProblem(t, ask(h), http.StatusInternalServerError, "broken-transaction")
	wantProblem(t, ask(h, withoutKey()), http.StatusInternalServerError, "broken-transaction")
	s.want(0, 0)
}
