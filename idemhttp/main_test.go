package idemhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/pgtest"
)

// shop is a service that inserts one order for each committed execution.
type shop struct {
	t    testing.TB
	pool *pgxpool.Pool
	runs atomic.Int64 // how often a handler ran, committed or not
	logs logs
}

func newShop(t testing.TB, configure ...func(*pgxpool.Config)) *shop {
	t.Helper()
	return shopOn(t, pgtest.New(t, configure...))
}

// inShop runs a parallel subtest with a shop of its own.
func inShop(t *testing.T, name string, test func(*testing.T, *shop)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, newShop(t))
	})
}

func shopOn(t testing.TB, pool *pgxpool.Pool) *shop {
	t.Helper()
	_, err := pool.Exec(context.Background(), `create table if not exists orders
		(id bigint generated always as identity primary key, tenant text not null, execution_id uuid)`)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t: t, pool: pool}
}

// middleware returns a Middleware whose scope is the tenant, changed by configure. A duplicate
// waits long enough for a slow machine.
func (s *shop) middleware(configure ...func(*idemhttp.Config)) *idemhttp.Middleware {
	s.t.Helper()
	config := idemhttp.Config{Scope: byTenant, Logger: slog.New(slog.NewTextHandler(&s.logs, nil)), Wait: time.Hour}
	for _, f := range configure {
		f(&config)
	}
	m, err := idemhttp.New(s.pool, config)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// byTenant takes the caller from the credential "Bearer tenant:secret".
func byTenant(r *http.Request) (string, error) {
	tenant, _, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ":")
	if !ok {
		return "", &idemhttp.Problem{Type: "about:blank", Title: "Who are you?", Status: http.StatusUnauthorized,
			Header: http.Header{"Www-Authenticate": {"Bearer"}}}
	}
	return idem.Scope(tenant, "orders"), nil
}

// place makes an order and returns its id.
func (s *shop) place(tx pgx.Tx) int64 {
	id, err := s.tryPlace(tx)
	if err != nil {
		s.t.Error(err)
	}
	return id
}

func (s *shop) tryPlace(tx pgx.Tx) (id int64, err error) {
	s.runs.Add(1)
	executionID, _ := idem.ExecutionID(tx)
	err = tx.QueryRow(context.Background(), `insert into orders (tenant, execution_id) values ('t', nullif($1, '')::uuid) returning id`,
		executionID).Scan(&id)
	return id, err
}

// order is a handler that answers 201 with an order that no other execution can answer with.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	id := s.place(idemhttp.Tx(r.Context()))
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"order":%d}`, id)
}

// answering returns a handler that makes an order and then answers with f.
func (s *shop) answering(f http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.place(idemhttp.Tx(r.Context()))
		f(w, r)
	})
}

func (s *shop) orders() int  { return s.count(`select count(*) from orders`) }
func (s *shop) records() int { return s.count(`select count(*) from idem.records`) }

func (s *shop) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// want fails the test unless there are this many orders and records.
func (s *shop) want(orders, records int) {
	s.t.Helper()
	if o, r := s.orders(), s.records(); o != orders || r != records {
		s.t.Errorf("%d orders and %d records, want %d and %d", o, r, orders, records)
	}
}

const teapot = `{"sku":"teapot"}`

type edit func(*http.Request)

// request returns a POST /orders for a teapot by tenant t, with the key k.
func request(edits ...edit) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(teapot))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer t:secret")
	r.Header.Set("Idempotency-Key", "k")
	for _, edit := range edits {
		edit(r)
	}
	return r
}

func withHeader(name string, values ...string) edit {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func withKey(key string) edit { return withHeader("Idempotency-Key", key) }

func withoutKey() edit { return withHeader("Idempotency-Key") }

func withTenant(tenant string) edit { return withHeader("Authorization", "Bearer "+tenant+":secret") }

func withBody(body string) edit {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
}

func withMethod(method string) edit { return func(r *http.Request) { r.Method = method } }

func withContext(ctx context.Context) edit {
	return func(r *http.Request) { *r = *r.WithContext(ctx) }
}

// ask sends the request to h and returns the answer.
func ask(h http.Handler, edits ...edit) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(edits...))
	return w.Result()
}

// body returns the body of an answer. It can be read again.
func body(t testing.TB, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return string(text)
}

func wantStatus(t testing.TB, response *http.Response, status int) {
	t.Helper()
	if response.StatusCode != status {
		t.Errorf("status %d, want %d: %s", response.StatusCode, status, body(t, response))
	}
}

// wantReplay fails the test unless got is a replay of first.
func wantReplay(t testing.TB, first, got *http.Response) {
	t.Helper()
	wantStatus(t, got, first.StatusCode)
	if a, b := body(t, first), body(t, got); a != b {
		t.Errorf("first %q, then %q", a, b)
	}
	if got.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("this is no replay")
	}
}

// wantProblem fails the test unless the answer is this problem, and returns its members.
func wantProblem(t testing.TB, response *http.Response, status int, kind string) map[string]any {
	t.Helper()
	wantStatus(t, response, status)
	if got := response.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(body(t, response)), &members); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(members["type"]); !strings.HasSuffix(got, "/docs/http-reference.md#"+kind) {
		t.Errorf("type %s, want %s", got, kind)
	}
	if members["status"] != float64(status) {
		t.Errorf("status %v in the body, want %d", members["status"], status)
	}
	return members
}

// logs collects log output.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// pgxNew returns a pool that need not have a server.
func pgxNew(t testing.TB, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}
