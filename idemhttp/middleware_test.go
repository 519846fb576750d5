package idemhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// Wrap and Handle share a record and give the same answer.
func TestHandle_AnswersLikeWrap(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	first := ask(m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		if idemhttp.Tx(r.Context()) != tx {
			t.Error("Tx returns another transaction")
		}
		s.order(w, r)
		return nil
	}))
	wantStatus(t, first, http.StatusCreated)
	wantReplay(t, first, ask(m.Wrap(http.HandlerFunc(s.order))))
	s.want(1, 1)
}

func TestTx_PanicsOutsideOfAMiddleware(t *testing.T) {
	t.Parallel()
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "Middleware.Wrap") {
			t.Errorf("panicked with %q", text)
		}
	}()
	idemhttp.Tx(t.Context())
}

func TestWrap_OtherMethodsPassThrough(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen *http.Request
	h := s.middleware().Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		w.WriteHeader(http.StatusTeapot)
	}))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r := request(withMethod(method), withKey("k, k"), withHeader("Authorization"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusTeapot || seen != r {
			t.Errorf("%s: status %d, the same request: %v", method, w.Code, seen == r)
		}
	}
	s.want(0, 0)
}

// A Problem that a handler returns is an answer like any other, but is never committed.
func TestHandle_ErrorRollsBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		err     error
		status  int
		kind    string
		records int
	}{
		{"a problem that is final", &idemhttp.Problem{Type: "x/docs/http-reference.md#own", Status: 422}, 422, "own", 1},
		{"a problem that will pass", &idemhttp.Problem{Type: "x/docs/http-reference.md#own", Status: 429}, 429, "own", 0},
		{"a problem with a status that commits", &idemhttp.Problem{Type: "x/docs/http-reference.md#own", Status: 200}, 200, "own", 1},
		{"any other", errors.New("no more teapots"), 500, "internal", 0},
		{"one that passes", &pgconn.PgError{Code: "53300"}, 503, "unavailable", 0},
		{"a deadline", context.DeadlineExceeded, 503, "unavailable", 0},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			h := s.middleware().Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				s.place(tx)
				w.Header().Set("Location", "/nowhere")
				_, _ = w.Write([]byte("half an answer"))
				return test.err
			})
			answer := ask(h)
			problem := wantProblem(t, answer, test.status, test.kind)
			if free := test.records == 0; problem["retryable"] != free {
				t.Errorf("retryable: %v, and the key is free: %v", problem["retryable"], free)
			}
			if answer.Header.Get("Location") != "" || strings.Contains(body(t, answer), "teapots") {
				t.Errorf("%v %s", answer.Header, body(t, answer))
			}
			s.want(0, test.records)
			if test.records == 1 {
				wantReplay(t, answer, ask(h))
			}
		})
	}
}

func TestHandle_RetriesASerializationFailureAfresh(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{"with a key": nil, "without a key": {withoutKey()}} {
		inShop(t, name, func(t *testing.T, s *shop) {
			m := s.middleware(func(c *idemhttp.Config) { c.Optional = true })
			h := m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				buf := make([]byte, 100)
				n, _ := r.Body.Read(buf)
				id := s.place(tx)
				if s.runs.Load() == 1 {
					w.Header().Set("X-Attempt", "1")
					w.WriteHeader(http.StatusAccepted)
					r.SetPathValue("attempt", "1")
					r.URL.Path = "/consumed"
					r.Header.Del("Authorization")
					return &pgconn.PgError{Code: "40001"}
				}
				if r.PathValue("attempt") != "" || r.URL.Path == "/consumed" || r.Header.Get("Authorization") == "" || id == 0 {
					t.Error("the second attempt sees the first")
				}
				_, err := w.Write(buf[:n])
				return err
			})
			answer := ask(h, edits...)
			wantStatus(t, answer, http.StatusOK)
			if body(t, answer) != teapot || answer.Header.Get("X-Attempt") != "" {
				t.Errorf("%v %s", answer.Header, body(t, answer))
			}
			s.want(1, 1-len(edits))
		})
	}
}

func TestWrap_PanicRollsBackAndPropagates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.Optional = true })
	for _, value := range []any{http.ErrAbortHandler, "teapot"} {
		h := m.Wrap(s.answering(func(http.ResponseWriter, *http.Request) { panic(value) }))
		for name, edits := range map[string][]edit{"with a key": nil, "without a key": {withoutKey()}} {
			func() {
				defer func() {
					if got := recover(); got != value {
						t.Errorf("%s: recovered %v, want %v", name, got, value)
					}
				}()
				ask(h, edits...)
			}()
		}
	}
	s.want(0, 0)
	wantStatus(t, ask(m.Wrap(http.HandlerFunc(s.order))), http.StatusCreated)
}

func TestWrap_ConcurrentDuplicatesHaveOneEffect(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(http.HandlerFunc(s.order))
	var wg sync.WaitGroup
	bodies := make([]string, 50)
	for i := range bodies {
		wg.Go(func() { bodies[i] = body(t, ask(h)) })
	}
	wg.Wait()
	for _, got := range bodies {
		if got != bodies[0] || got == "" {
			t.Errorf("%q and %q", got, bodies[0])
		}
	}
	s.want(1, 1)
}

// holding is a request that is in its handler until release is closed.
func (s *shop) holding(m *idemhttp.Middleware) (release, done chan struct{}) {
	release, done = make(chan struct{}), make(chan struct{})
	inside := make(chan struct{})
	h := m.Wrap(s.answering(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-release
	}))
	go func() {
		defer close(done)
		ask(h)
	}()
	<-inside
	return release, done
}

func TestWrap_InProgressIsA409WithRetryAfter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware(func(c *idemhttp.Config) { c.Wait = -1 })
	release, done := s.holding(m)
	answer := ask(m.Wrap(http.HandlerFunc(s.order)))
	problem := wantProblem(t, answer, http.StatusConflict, "in-progress")
	if problem["retryable"] != true || problem["safe_new_key"] != false || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("%v, Retry-After %q", problem, answer.Header.Get("Retry-After"))
	}
	close(release)
	<-done
	s.want(1, 1)
}

func TestWrap_DuplicateWaitsAndReplays(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	waiting := make(chan struct{})
	m := s.middleware(func(c *idemhttp.Config) { c.Wait, c.Observer = time.Minute, onWaiting(waiting) })
	release, done := s.holding(m)
	go func() {
		<-waiting
		close(release)
	}()
	answer := ask(m.Wrap(http.HandlerFunc(s.order)))
	wantStatus(t, answer, http.StatusOK)
	if answer.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("this is no replay")
	}
	<-done
	s.want(1, 1)
}

// onWaiting is an observer that closes a channel when a call begins to wait.
type onWaiting chan struct{}

func (onWaiting) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (o onWaiting) TraceEvent(_ context.Context, data idem.TraceEventData) {
	if data.Event == idem.EventWaiting {
		close(o)
	}
}

func (onWaiting) TraceEnd(context.Context, idem.TraceEndData) {}

func TestWrap_AppliedTwiceIsAnError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	wantProblem(t, ask(m.Wrap(m.Wrap(http.HandlerFunc(s.order)))), http.StatusInternalServerError, "internal")
	if !strings.Contains(s.logs.String(), "applied twice") {
		t.Errorf("the log says %s", &s.logs)
	}
	s.want(0, 0)
}

// The adaptor of a framework may call its handlers after the middleware, or with the client's
// writer.
func TestWrap_DetectsAHandlerThatRunsOutside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m := s.middleware()
	behind := func(w http.ResponseWriter, r *http.Request) { // as fiber's adaptor does
		called := false
		m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true })).ServeHTTP(w, r)
		if !called {
			t.Error("it was not asked")
		}
	}
	wantProblem(t, ask(http.HandlerFunc(behind)), http.StatusInternalServerError, "internal")
	beside := func(w http.ResponseWriter, r *http.Request) { // as gin's middleware would
		outside := &written{ResponseWriter: w}
		m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.order(outside, r) })).ServeHTTP(outside, r)
	}
	ask(http.HandlerFunc(beside))
	s.want(0, 0)
	if logged := s.logs.String(); !strings.Contains(logged, "calls it after Wrap has returned") || !strings.Contains(logged, "another http.ResponseWriter") {
		t.Errorf("the log does not say why: %s", logged)
	}
	order := m.Wrap(http.HandlerFunc(s.order))
	if answer := ask(order); answer.StatusCode != http.StatusCreated || answer.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("mended, it is answered %d %v", answer.StatusCode, answer.Header)
	}
}

// written reports whether the client has an answer, as the writers of frameworks do.
type written struct {
	http.ResponseWriter
	has bool
}

func (w *written) WriteHeader(status int) {
	w.has = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *written) Written() bool { return w.has }
