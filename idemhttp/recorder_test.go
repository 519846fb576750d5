package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

func TestReplay_IsExactToTheByte(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(teapot))
	_ = zip.Close()
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	header := func(w http.ResponseWriter, name string, values ...string) { w.Header()[name] = values }
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   exchanged
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {},
			exchanged{Status: 200, Header: http.Header{}}},
		{"implicit status", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>") },
			exchanged{Status: 200, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: "<p>"}},
		{"202 with Location", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Location", "/orders/status")
			header(w, "Retry-After", "5")
			w.WriteHeader(202)
		}, exchanged{Status: 202, Header: http.Header{"Location": {"/orders/status"}, "Retry-After": {"5"}}}},
		{"204", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		}, exchanged{Status: 204, Header: http.Header{}}},
		{"304", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Etag", `"1"`)
			w.WriteHeader(304)
		}, exchanged{Status: 304, Header: http.Header{"Etag": {`"1"`}}}},
		{"gzip", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Encoding", "gzip")
			header(w, "Content-Type", "application/json")
			_, _ = w.Write(packed.Bytes())
		}, exchanged{Status: 200, Header: http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"application/json"}}, Body: packed.String()}},
		{"encoded and untyped", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		}, exchanged{Status: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: packed.String()}},
		{"every byte", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(everyByte) },
			exchanged{Status: 200, Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: string(everyByte)}},
		{"several values", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Link", `</a>; rel="next", </b>`, "</c>")
			header(w, "X-Empty", "")
		}, exchanged{Status: 200, Header: http.Header{"Link": {`</a>; rel="next", </b>`, "</c>"}, "X-Empty": {""}}}},
		{"the first status counts", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.WriteHeader(404)
			header(w, "X-Late", "1")
		}, exchanged{Status: 202, Header: http.Header{}}},
		{"an informational one does not count", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(201)
		}, exchanged{Status: 201, Header: http.Header{}}},
		{"header changed in place after the status", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "X-A", "before")
			w.WriteHeader(200)
			w.Header()["X-A"][0] = "after"
		}, exchanged{Status: 200, Header: http.Header{"X-A": {"before"}}}},
		{"no sniffing wanted", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Type")
			_, _ = io.WriteString(w, "<p>")
		}, exchanged{Status: 200, Header: http.Header{}, Body: "<p>"}},
		{"rejected", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 404) },
			exchanged{Status: 404, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}, Body: "no\n"}},
		{"Content-Length that is none", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "some")
			_, _ = io.WriteString(w, "ab")
		}, exchanged{Status: 200, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: "ab"}},
		{"Content-Length that is right", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "2")
			for range 2 {
				if _, err := io.WriteString(w, "a"); err != nil {
					t.Error(err)
				}
			}
		}, exchanged{Status: 200, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: "aa"}},
		{"large", func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			}
		}, exchanged{Status: 200, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: strings.Repeat("x", 100_000)}},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			server := httptest.NewServer(s.middleware().Wrap(s.answering(test.answer)))
			defer server.Close()
			for _, replayed := range []string{"", "true"} {
				got := over(t, server.Client().Transport, server.URL, "k")
				if got.Header.Get("Idempotency-Replayed") != replayed {
					t.Errorf("Idempotency-Replayed: %q, want %q", got.Header.Get("Idempotency-Replayed"), replayed)
				}
				if diff := cmp.Diff(test.want, own(got)); diff != "" {
					t.Errorf("(-want +got, replayed: %q)\n%s", replayed, diff)
				}
			}
			if n := s.runs.Load(); n != 1 {
				t.Errorf("the handler ran %d times", n)
			}
		})
	}
}

// exchanged is an answer as the client gets it.
type exchanged struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
}

// over sends the order through a transport that does nothing of its own.
func over(t testing.TB, transport http.RoundTripper, url, key string, edits ...edit) exchanged {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(teapot))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer t:secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Accept-Encoding", "identity")
	for _, edit := range edits {
		edit(r)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return exchanged{response.StatusCode, response.Header, body(t, response), response.Trailer}
}

// own takes away what the server and the middleware add to an answer.
func own(e exchanged) exchanged {
	e.Header = e.Header.Clone()
	for _, name := range []string{"Date", "Content-Length", "Idempotency-Replayed", idemhttp.OriginalDateHeader, idemhttp.ExpiresHeader} {
		e.Header.Del(name)
	}
	return e
}

func TestRecorder_UnrecordableAnswerRollsBack(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"announced trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "1")
		},
		"trailer by prefix": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		},
		"body shorter than its Content-Length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "four")
		},
		"body longer than its Content-Length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			if _, err := io.WriteString(w, "four"); !errors.Is(err, http.ErrContentLength) {
				t.Error(err)
			}
		},
		"another protocol":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) },
		"header not in UTF-8":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Name", "M\xfcller") },
		"body above the limit": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20+1)) },
	}
	for _, status := range []int{200, 404, 503} { // one for each Decision, without a Write that could fail
		answers[fmt.Sprint("header above the limit, ", status)] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 1<<20))
			w.WriteHeader(status)
		}
	}
	for name, answer := range answers {
		inShop(t, name, func(t *testing.T, s *shop) {
			h := s.middleware(optional).Wrap(s.answering(answer))
			keys := []edit{withKey("k"), withKey("k")}
			if name != "header not in UTF-8" { // which can be sent, if it is not recorded
				keys = append(keys, withoutKey())
			}
			for _, key := range keys {
				problem := wantProblem(t, ask(h, key), http.StatusInternalServerError, "unrecordable")
				if problem["retryable"] != false || problem["safe_new_key"] != true {
					t.Error(problem)
				}
			}
			if !strings.Contains(s.logs.String(), "cannot be") && !strings.Contains(s.logs.String(), "too large") {
				t.Errorf("the log says %s", &s.logs)
			}
			s.want(0, 0)
		})
	}
}

// The limit counts the body and the recorded header as JSON. The Write that exceeds it fails.
func TestRecorder_AnswerUpToMaxResponseIsWhole(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, test := range []struct {
		name     string
		header   http.Header
		recorded string // as it is stored
	}{
		{"no header", http.Header{"Content-Type": {}}, `{"Content-Type":[]}`},
		{"Content-Type", http.Header{"Content-Type": {"text/plain"}}, `{"Content-Type":["text/plain"]}`},
		{"Content-Type made out from the body", nil, `{"Content-Type":["text/plain; charset=utf-8"]}`},
		{"several", http.Header{"Content-Type": {"a"}, "Link": {"</a>", "\"ü\"", ""}, "X-Empty": {}},
			`{"Content-Type":["a"],"Link":["\u003c/a\u003e","\"ü\"",""],"X-Empty":[]}`},
		{"not recorded", http.Header{"Content-Type": {"a"}, "Set-Cookie": {strings.Repeat("x", 2000)}}, `{"Content-Type":["a"]}`},
		{"much to escape", http.Header{"Content-Type": {strings.Repeat("<", 100)}}, `{"Content-Type":["` + strings.Repeat(`\u003c`, 100) + `"]}`},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			m := s.middleware(optional, func(c *idemhttp.Config) { c.MaxResponse = limit })
			most := limit - len(test.recorded)
			for _, size := range []int{most, most + 1, 100 * limit} {
				for _, piece := range []int{7, size} {
					for _, status := range []int{200, 503} {
						var took int
						var failed error
						h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							maps.Copy(w.Header(), test.header)
							w.WriteHeader(status)
							took, failed = writePieces(w, size, piece)
						}))
						for _, key := range []edit{withKey(fmt.Sprint(size, "-", piece, "-", status)), withoutKey()} {
							answer := ask(h, key)
							if size <= most {
								if wantStatus(t, answer, status); failed != nil || len(body(t, answer)) != size {
									t.Errorf("%d in pieces of %d: %v, and %d bytes are sent", size, piece, failed, len(body(t, answer)))
								}
								continue
							}
							wantProblem(t, answer, http.StatusInternalServerError, "unrecordable")
							if !errors.Is(failed, idem.ErrResponseTooLarge) || took != most/piece*piece {
								t.Errorf("%d in pieces of %d: the writer took %d and said %v", size, piece, took, failed)
							}
						}
					}
				}
			}
			s.want(0, 2)
		})
	}
}

// writePieces writes size bytes, and returns how many were taken until the writer said no.
func writePieces(w io.Writer, size, piece int) (took int, err error) {
	for took < size {
		n, err := w.Write([]byte(strings.Repeat("x", min(piece, size-took))))
		took += n
		if err != nil {
			if _, again := w.Write([]byte("x")); again == nil {
				return took, errors.New("the writer took more after it had said no")
			}
			return took, err
		}
	}
	return took, nil
}

// Whatever interface the handler uses, it gets an error, and what it writes later is not lost.
func TestRecorder_StreamingReturnsAnError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		controller := http.NewResponseController(w)
		_, _ = io.WriteString(w, "before,")
		_, _, hijack := controller.Hijack()
		for name, err := range map[string]error{
			"Flush": controller.Flush(), "Hijack": hijack, "EnableFullDuplex": controller.EnableFullDuplex(),
			"SetReadDeadline": controller.SetReadDeadline(time.Now()), "SetWriteDeadline": controller.SetWriteDeadline(time.Now()),
		} {
			if !errors.Is(err, http.ErrNotSupported) || !strings.Contains(err.Error(), "after the commit") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, ok := w.(http.Flusher); ok {
			t.Error("the writer claims to be a Flusher")
		}
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("the writer gives away the one below")
		}
		_, _ = io.WriteString(w, "after")
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	for range 2 {
		if got := over(t, server.Client().Transport, server.URL, "k"); got.Body != "before,after" {
			t.Errorf("%q", got.Body)
		}
	}
	s.want(1, 1)
}

func TestRecorder_FailsAfterTheHandlerReturned(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var w http.ResponseWriter
	var r *http.Request
	h := s.middleware().Wrap(s.answering(func(kept http.ResponseWriter, of *http.Request) { w, r = kept, of }))
	first := ask(h)
	wantStatus(t, first, http.StatusOK)
	if _, err := w.Write([]byte("late")); err == nil {
		t.Error("Write works")
	}
	if _, err := io.WriteString(w, "late"); err == nil {
		t.Error("WriteString works")
	}
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read: %v", err)
	}
	if _, err := idemhttp.Tx(r.Context()).Exec(t.Context(), "select 1"); err == nil {
		t.Error("the transaction works")
	}
	w.WriteHeader(http.StatusTeapot)
	w.Header().Set("X-Late", "1")
	again := ask(h)
	wantReplay(t, first, again)
	if again.Header.Get("X-Late") != "" {
		t.Error("what came late was recorded")
	}
}

// A goroutine that outlives the handler gets errors. The race detector checks the rest.
func TestRecorder_LeftoverGoroutineIsNoRace(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var wg sync.WaitGroup
	started := make(chan struct{})
	h := s.middleware().Wrap(s.answering(func(w http.ResponseWriter, r *http.Request) {
		wg.Go(func() {
			once := sync.OnceFunc(func() { close(started) })
			buf := make([]byte, 1)
			for {
				_, written := w.Write([]byte("x"))
				w.WriteHeader(http.StatusAccepted)
				_, read := r.Body.Read(buf)
				once()
				if written != nil && read != nil && !errors.Is(read, io.EOF) {
					return
				}
			}
		})
		<-started
	}))
	first := ask(h)
	wg.Wait()
	if got := body(t, first); strings.Trim(got, "x") != "" || got == "" {
		t.Errorf("%q", got)
	}
	wantReplay(t, first, ask(h))
}
