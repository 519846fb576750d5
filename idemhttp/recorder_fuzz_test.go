package idemhttp_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemhttp"
)

// program is a handler that interprets bytes: each byte is an action, and some actions take the
// next byte as an argument. It is deterministic, so that runs can be compared.
type program []byte

var (
	programStatuses = []int{200, 201, 202, 204, 301, 304, 400, 404, 422, 429, 500, 503, 100, 102, 103}
	programNames    = []string{"Content-Type", "X-A", "x-lower", "Set-Cookie", "Vary", "Content-Encoding", "Connection", "X-Outer", "Location", "X-Request-Id"}
	programValues   = []string{"", "a", "text/plain", "application/json", "close", "gzip", "a, b", "ü", " padded ", "two\nlines"}
	programLengths  = []string{"0", "1", "2", "600", "3000"}
	programTexts    = []string{"", "a", "ab", "<!DOCTYPE html>", "{}", "\x1f\x8b\x08", strings.Repeat("x", 600), strings.Repeat("\x00", 3000)}
)

func pick[T any](from []T, n byte) T { return from[int(n)%len(from)] }

func (p program) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	held := w.Header()
	for i := 0; i+2 < len(p); i += 3 {
		name, value := pick(programNames, p[i+1]), pick(programValues, p[i+2])
		switch p[i] % 12 {
		case 0:
			w.Header().Set(name, value)
		case 1:
			w.Header().Add(name, value)
		case 2:
			w.Header().Del(name)
		case 3:
			w.Header()[name] = nil
		case 4:
			held[name] = []string{value, "another"}
		case 5:
			w.WriteHeader(pick(programStatuses, p[i+1]))
		case 6, 7:
			_, _ = w.Write([]byte(pick(programTexts, p[i+1])))
		case 8:
			_, _ = io.WriteString(w, pick(programTexts, p[i+1]))
		case 9:
			_, _ = io.Copy(w, bytes.NewBufferString(pick(programTexts, p[i+1])))
		case 10:
			w.Header().Set("Content-Length", pick(programLengths, p[i+1]))
		case 11:
			if p[i+1] < 16 { // a trailer ends the comparison, so let it be rare
				w.Header().Set(http.TrailerPrefix+"X-Sum", value)
			}
		}
	}
}

// refusable reports whether the middleware may refuse what net/http accepts.
func (p program) refusable() bool {
	for i := 0; i+2 < len(p); i += 3 {
		if action := p[i] % 12; action == 10 || action == 11 {
			return true
		}
	}
	return false
}

// statuses is a writer that notices a failure behind an answer.
type statuses struct {
	http.ResponseWriter
	first  int
	failed bool
}

func (s *statuses) WriteHeader(status int) {
	switch {
	case status < 200:
	case s.first == 0:
		s.first = status
	case status >= 500 && s.first < 500:
		s.failed = true
	}
}

func (s *statuses) Write(p []byte) (int, error) {
	if s.first == 0 {
		s.WriteHeader(http.StatusOK)
	}
	return len(p), nil
}

// fails reports whether the program answers 5xx after another answer. net/http ignores that.
func (p program) fails() bool {
	w := &statuses{ResponseWriter: httptest.NewRecorder()}
	p.ServeHTTP(w, nil)
	return w.failed
}

// exchanged is an answer as the client gets it.
type exchanged struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
}

// arena has a server with the plain program at /plain and the same under a middleware at /idem.
type arena struct {
	t      testing.TB
	server *httptest.Server
	mu     sync.Mutex
	run    program
	keys   int
}

func newArena(t testing.TB) *arena {
	a := &arena{t: t}
	s := newShop(t)
	// All that can be sent without a body by HEAD is kept by POST as well.
	m := s.middleware(func(c *idemhttp.Config) { c.Methods = []string{http.MethodPost, http.MethodHead} })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.run.ServeHTTP(w, r) })
	mux := http.NewServeMux()
	mux.Handle("/plain", handler)
	mux.Handle("/idem", m.Wrap(handler))
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "a")
		w.Header().Set("Vary", "Origin")
		mux.ServeHTTP(w, r)
	}))
	a.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.server.Start()
	t.Cleanup(a.server.Close)
	return a
}

func (a *arena) ask(t testing.TB, method, path, key string) exchanged {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, a.server.URL+path, strings.NewReader(teapot))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer t:secret")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Accept-Encoding", "identity")
	response, err := a.server.Client().Transport.RoundTrip(r) // it follows no redirects
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		text = fmt.Append(text, err)
	}
	response.Header.Del("Date")
	if method != http.MethodHead {
		response.Header.Del("Content-Length") // how the body is framed is between two hops
	}
	return exchanged{response.StatusCode, response.Header, string(text), response.Trailer}
}

// play compares three answers: net/http's, that of the first attempt, and that of the second.
func (a *arena) play(t testing.TB, run program, method string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.run = run
	a.keys++
	key := fmt.Sprint("key-", a.keys)

	first := a.ask(t, method, "/idem", key)
	if first.Status == http.StatusInternalServerError && run.refusable() && first.Header.Get("Content-Type") == "application/problem+json" {
		return
	}
	if run.fails() {
		if again := a.ask(t, method, "/idem", key); first.Status < 500 || again.Status != first.Status || again.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("program %v, %s: it fails behind its answer, and was answered %d and %d %v", []byte(run), method, first.Status, again.Status, again.Header)
		}
		return
	}
	plain := a.ask(t, method, "/plain", key)
	if diff := cmp.Diff(plain, first); diff != "" {
		t.Errorf("program %v, %s: (-net/http +first attempt)\n%s", []byte(run), method, diff)
	}
	second := a.ask(t, method, "/idem", key)
	remembered := first.Status < 500 && first.Status != http.StatusTooManyRequests
	if replayed := second.Header.Get("Idempotency-Replayed") == "true"; replayed != remembered {
		t.Errorf("program %v: %d was replayed: %v", []byte(run), first.Status, replayed)
	}
	if !remembered {
		return
	}
	for _, name := range []string{"Idempotency-Replayed", idemhttp.OriginalDateHeader, idemhttp.ExpiresHeader} {
		second.Header.Del(name)
	}
	maps.DeleteFunc(first.Header, func(name string, _ []string) bool { return notKept(name) })
	maps.DeleteFunc(second.Header, func(name string, _ []string) bool { return notKept(name) })
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("program %v, %s: (-first attempt +replay)\n%s", []byte(run), method, diff)
	}
}

func notKept(name string) bool {
	return name == "Set-Cookie" || name == "Connection" || name == "X-Request-Id"
}

func FuzzReplayIsWhatTheHandlerWrote(f *testing.F) {
	seeds := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		run := make([]byte, 3*seeds.IntN(8))
		for i := range run {
			run[i] = byte(seeds.UintN(256))
		}
		f.Add(run, seeds.IntN(4) == 0)
	}
	a := newArena(f)
	f.Fuzz(func(t *testing.T, run []byte, head bool) {
		method := http.MethodPost
		if head {
			method = http.MethodHead
		}
		a.play(t, run[:min(len(run), 3*64)], method) // so that no body is above the limit
	})
}
