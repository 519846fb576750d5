package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/pgtest"
)

// The demo starts the test binary as its parts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "service", "bank", "broker", "fulfilment":
			main()
		}
	}
	os.Exit(m.Run())
}

// shop is the service on its own database.
type shop struct {
	t       testing.TB
	pool    *pgxpool.Pool
	handler http.Handler
	bank    *testBank
}

func newShop(t testing.TB) *shop {
	t.Helper()
	pool := pgtest.New(t)
	if err := migrate(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	return shopOn(t, pool)
}

func shopOn(t testing.TB, pool *pgxpool.Pool) *shop {
	t.Helper()
	metrics, err := newMetrics(pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { metrics.stop() })
	bank := openBank(t)
	service, err := newService(pool, demoCredentials(), newPayments(bank.url), webhookSecret, metrics)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t: t, pool: pool, handler: service, bank: bank}
}

// webhookSecret is the secret of the shops in the tests.
var webhookSecret = newSecret()

// testBank is the bank of a shop.
type testBank struct {
	*bank.Bank
	url string
}

func openBank(t testing.TB) *testBank {
	t.Helper()
	handler := bank.New(time.Hour)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &testBank{handler, server.URL}
}

const (
	twoTeapots = `{"sku":"teapot","quantity":2,"amount_cents":9800,"currency":"EUR"}`
	aSamovar   = `{"sku":"samovar","quantity":1,"amount_cents":19900,"currency":"EUR"}`
)

// edit changes a request before it is sent.
type edit func(*http.Request)

func withBody(body string) edit {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
}

func withHeader(name string, values ...string) edit {
	return func(r *http.Request) { r.Header[name] = values }
}

func withKey(key string) edit { return withHeader("Idempotency-Key", key) }

func withCredential(secret string) edit { return withHeader("Authorization", "Bearer "+secret) }

// order sends an order of two teapots for acme with the key "k", after the edits.
func (s *shop) order(edits ...edit) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(twoTeapots))
	return s.do(r, append([]edit{withKey("k"), withCredential("acme-key"), withHeader("Content-Type", "application/json")}, edits...)...)
}

func (s *shop) get(path string, edits ...edit) *httptest.ResponseRecorder {
	return s.do(httptest.NewRequest(http.MethodGet, path, nil), append([]edit{withCredential("acme-key")}, edits...)...)
}

func (s *shop) do(r *http.Request, edits ...edit) *httptest.ResponseRecorder {
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func (s *shop) exec(sql string) {
	s.t.Helper()
	if _, err := s.pool.Exec(context.Background(), sql); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) count(sql string) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// wantOrders fails the test unless there are exactly want orders of two teapots: with one ledger
// entry each, and with their units taken from the stock.
func (s *shop) wantOrders(want int) {
	s.t.Helper()
	orders, entries := s.count(`SELECT count(*) FROM orders`), s.count(`SELECT count(*) FROM ledger`)
	if orders != want || entries != want {
		s.t.Errorf("%d orders and %d entries in the ledger, want %d of each", orders, entries, want)
	}
	if left := s.count(`SELECT sum(quantity) FROM stock`); left != 2000-2*want {
		s.t.Errorf("%d units left in stock, want %d", left, 2000-2*want)
	}
}

func wantStatus(t testing.TB, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("answered %d %s, want %d", w.Code, w.Body, status)
	}
}

// ourType is the prefix of the service's own problem types.
const ourType = "urn:example:"

// wantProblem fails the test unless the answer is a problem of this type.
func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, kind string) {
	t.Helper()
	wantStatus(t, w, status)
	var p idemhttp.Problem
	if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Type != kind || p.Status != status || p.Title == "" {
		t.Errorf("problem %+v, want the type %s and the status %d", p, kind, status)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
}

// wantReplay fails the test unless again equals first and has the replay header.
func wantReplay(t testing.TB, first, again *httptest.ResponseRecorder) {
	t.Helper()
	if got := again.Header().Get("Idempotency-Replayed"); got != "true" {
		t.Errorf("Idempotency-Replayed %q, want true", got)
	}
	for _, name := range []string{"Content-Type", "Location"} {
		if first.Header().Get(name) != again.Header().Get(name) {
			t.Errorf("%s: %q, in the replay %q", name, first.Header().Get(name), again.Header().Get(name))
		}
	}
	if first.Code != again.Code || first.Body.String() != again.Body.String() {
		t.Errorf("answered %d %s, in the replay %d %s", first.Code, first.Body, again.Code, again.Body)
	}
}
