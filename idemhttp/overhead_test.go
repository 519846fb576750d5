package idemhttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// What the middleware costs over a handler that calls idem.Do itself: the same requests, the same
// answers, and in the place of idem.Do one that only calls fn. The database and the rest of idem.Do
// cost both the same.

type do func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error)

func doWithoutDatabase(_ context.Context, _ *pgxpool.Pool, _, _ string, _ idem.Hash, fn func(pgx.Tx) (idem.Response, error), _ ...idem.Option) (idem.Result, error) {
	response, err := fn(nil)
	return idem.Result{Response: response}, err
}

type placed struct {
	Order int    `json:"order"`
	SKU   string `json:"sku"`
}

// rawHandler is the same by hand, with nothing left out that the guarantee needs.
func rawHandler(do do) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := idem.Scope(r.Header.Get("X-Tenant"), "POST /orders")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		hash, err := idem.HashJSON(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		result, err := do(r.Context(), nil, scope, r.Header.Get("Idempotency-Key"), hash, func(pgx.Tx) (idem.Response, error) {
			body, err := json.Marshal(placed{7, "teapot"})
			return idem.Response{
				Status: http.StatusCreated,
				Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/7"}},
				Body:   body,
			}, err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for name, values := range result.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(result.Status)
		_, _ = w.Write(result.Body)
	})
}

func wrappedHandler(t testing.TB, do do) http.Handler {
	m, err := New(&pgxpool.Pool{}, Config{Scope: func(r *http.Request) (string, error) {
		return idem.Scope(r.Header.Get("X-Tenant"), "POST /orders"), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.do = do
	return m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = Tx(r.Context())
		body, err := json.Marshal(placed{7, "teapot"})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/orders/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}))
}

// discard is a writer that costs next to nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// asking returns a function that gives one small request to h, again and again.
func asking(t testing.TB, h http.Handler) func() {
	const body = `{"sku":"teapot","quantity":2,"amount_cents":9800,"currency":"EUR"}`
	r, err := http.NewRequest(http.MethodPost, "/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
	r.Header.Set("X-Tenant", "acme")
	r.RequestURI, r.ContentLength = "/orders", int64(len(body))
	reader := strings.NewReader(body)
	r.Body = io.NopCloser(reader)
	w := &discard{http.Header{}}
	return func() {
		reader.Reset(body)
		clear(w.header)
		h.ServeHTTP(w, r)
		if len(w.header) == 0 {
			t.Fatal("no answer")
		}
	}
}

func TestWrap_Allocations(t *testing.T) {
	const limit = 15
	raw := testing.AllocsPerRun(1000, asking(t, rawHandler(doWithoutDatabase)))
	wrapped := testing.AllocsPerRun(1000, asking(t, wrappedHandler(t, doWithoutDatabase)))
	t.Logf("%v allocations by hand, %v with the middleware", raw, wrapped)
	if wrapped-raw > limit {
		t.Errorf("the middleware costs %v allocations, the limit is %d", wrapped-raw, limit)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for name, h := range map[string]http.Handler{
		"by hand":    rawHandler(doWithoutDatabase),
		"middleware": wrappedHandler(b, doWithoutDatabase),
	} {
		b.Run(name, func(b *testing.B) {
			ask := asking(b, h)
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
