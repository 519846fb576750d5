package idemhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// readers are Scopes that read the body, each in another way, and find the tenant in it.
var readers = map[string]func(r *http.Request) (string, error){
	"all of it": func(r *http.Request) (string, error) {
		var members map[string]string
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err == nil {
			err = json.Unmarshal(text, &members)
		}
		return members["tenant"], err
	},
	"its beginning": func(r *http.Request) (string, error) {
		start := make([]byte, len(`{"tenant":"t"`))
		_, err := io.ReadFull(r.Body, start)
		return strings.Trim(string(start[len(start)-2:]), `"`), err
	},
	"all of it, and puts nothing in its place": func(r *http.Request) (string, error) {
		_, err := io.Copy(io.Discard, r.Body)
		r.Body = nil
		return "t", err
	},
	"none of it, and closes it": func(r *http.Request) (string, error) { return "t", r.Body.Close() },
}

// The test uses a real connection, so that the body arrives with a length or in chunks, and in many
// pieces.
func TestScope_MayReadTheBody(t *testing.T) {
	t.Parallel()
	for name, scope := range readers {
		for _, size := range []int{1, 1000, 100_000} {
			inShop(t, fmt.Sprint(name, "/", size), func(t *testing.T, s *shop) {
				m := s.middleware(func(c *idemhttp.Config) {
					c.Scope = scope
					c.Fingerprint = func(r *http.Request, body []byte) (idem.Hash, error) {
						if again, err := io.ReadAll(r.Body); err != nil || string(again) != string(body) {
							t.Errorf("the fingerprint reads %d bytes, %v, and has %d", len(again), err, len(body))
						}
						return idemhttp.DefaultFingerprint(r, body)
					}
				})
				server := httptest.NewServer(m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
					s.place(tx)
					_, err := io.Copy(w, r.Body)
					return err
				}))
				defer server.Close()
				post := func(key, text string, chunked bool) exchanged {
					return over(t, server.Client().Transport, server.URL, key, withBody(text), func(r *http.Request) {
						if chunked {
							r.ContentLength = -1
						}
					})
				}
				text := `{"tenant":"t","text":"` + strings.Repeat("x", size) + `a"}`
				other := strings.Replace(text, "a\"}", "b\"}", 1)
				for _, chunked := range []bool{true, false} {
					key := fmt.Sprint("chunked-", chunked)
					if got := post(key, text, chunked); got.Status != 200 || got.Body != text {
						t.Errorf("%s: %d, and the handler has read %d bytes of %d", key, got.Status, len(got.Body), len(text))
					}
					if got := post(key, other, chunked); got.Status != 422 {
						t.Errorf("%s: a different request is answered %d", key, got.Status)
					}
					if got := post(key, text, !chunked); got.Header.Get("Idempotency-Replayed") != "true" || got.Body != text {
						t.Errorf("%s: the same request is answered %d", key, got.Status)
					}
				}
				s.want(2, 2)
			})
		}
	}
}

// counted counts how often a body is read.
type counted struct {
	io.Reader
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}

func TestScope_RejectedRequestBodyIsNotRead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(http.HandlerFunc(s.order))
	for _, test := range []struct {
		edit   edit
		status int
	}{{withHeader("Authorization"), 401}, {withoutKey(), 400}, {withKey("a,b"), 400}} {
		for _, length := range []int64{-1, int64(len(teapot))} {
			source := &counted{Reader: strings.NewReader(teapot)}
			answer := ask(h, test.edit, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(source), length })
			if wantStatus(t, answer, test.status); source.reads != 0 {
				t.Errorf("%d: the body was read %d times", test.status, source.reads)
			}
			if test.status == 401 && answer.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("the Problem of Scope is not the answer: %v", answer.Header)
			}
		}
	}
	source := &counted{Reader: strings.NewReader(teapot)}
	answer := ask(h, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(source), 1<<20+1 })
	if wantProblem(t, answer, http.StatusRequestEntityTooLarge, "body-too-large"); source.reads != 0 {
		t.Errorf("a body that is announced as too large was read %d times", source.reads)
	}
}

func TestScope_ReadsAtMostMaxBody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var read int
	var scopeErr error
	m := s.middleware(func(c *idemhttp.Config) {
		c.MaxBody = 1000
		c.Scope = func(r *http.Request) (string, error) {
			text, err := io.ReadAll(r.Body)
			if read = len(text); scopeErr != nil && err != nil {
				err = scopeErr
			}
			return "t", err
		}
	})
	h := m.Wrap(http.HandlerFunc(s.order))
	sending := func(size int, announced int64, end error) edit {
		return func(r *http.Request) {
			source := io.MultiReader(strings.NewReader(`"`+strings.Repeat("x", size-2)+`"`), &broken{end})
			r.Body, r.ContentLength = io.NopCloser(source), announced
		}
	}
	for _, test := range []struct {
		name     string
		edit     edit
		scopeErr error
		status   int
		kind     string
	}{
		{"in chunks", sending(1001, -1, io.EOF), nil, 413, "body-too-large"},
		{"announced", sending(1001, 1001, io.EOF), nil, 413, "body-too-large"},
		{"announced as less", sending(1001, 1000, io.EOF), nil, 413, "body-too-large"},
		{"with an error of its own", sending(1001, -1, io.EOF), errors.New("no"), 413, "body-too-large"},
		{"with a problem of its own", sending(1001, -1, io.EOF), &idemhttp.Problem{Type: "x/docs/http-reference.md#own", Status: 418}, 418, "own"},
		{"cut", sending(900, -1, io.ErrUnexpectedEOF), nil, 400, "body-unreadable"},
		{"shorter than announced", sending(900, 901, io.EOF), nil, 400, "body-unreadable"},
	} {
		scopeErr = test.scopeErr
		answer := ask(h, test.edit)
		if wantProblem(t, answer, test.status, test.kind); t.Failed() {
			t.Fatalf("in the case %q", test.name)
		}
		if read > 1001 {
			t.Errorf("%s: Scope was given %d bytes", test.name, read)
		}
	}
	scopeErr = nil
	wantStatus(t, ask(h, sending(1000, -1, io.EOF)), http.StatusCreated)
	wantStatus(t, ask(h, sending(1000, 1000, io.EOF)), http.StatusCreated)
	s.want(1, 1)
}

// broken is a body that only returns an error.
type broken struct{ err error }

func (b *broken) Read([]byte) (int, error) { return 0, b.err }

// Middleware that decodes a body often leaves the Content-Length unchanged.
func TestBody_LongerThanItsContentLengthIsReadWhole(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		s.place(tx)
		_, err := io.Copy(w, r.Body)
		return err
	})
	decoded := func(text string) edit {
		return func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), 5 }
	}
	long := `{"sku":"` + strings.Repeat("x", 5000)
	if got := body(t, ask(h, decoded(long+`a"}`))); got != long+`a"}` {
		t.Errorf("the handler has read %d bytes", len(got))
	}
	wantProblem(t, ask(h, decoded(long+`b"}`)), http.StatusUnprocessableEntity, "key-reused")
}

// The handler parses a form again that Scope has parsed. No temporary file is left.
func TestScope_MayParseAForm(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var files []string
	tenantOf := func(r *http.Request) string {
		if err := r.ParseMultipartForm(1); err != nil { // all but a byte goes into files
			t.Error(err)
			return ""
		}
		for _, header := range r.MultipartForm.File["file"] {
			f, err := header.Open()
			if err != nil {
				t.Error(err)
				continue
			}
			if file, ok := f.(*os.File); ok {
				files = append(files, file.Name())
			}
			_ = f.Close()
		}
		return r.FormValue("tenant")
	}
	m := s.middleware(func(c *idemhttp.Config) {
		c.Scope = func(r *http.Request) (string, error) { return tenantOf(r), nil }
	})
	h := m.Wrap(s.answering(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, tenantOf(r)) }))
	var form strings.Builder
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("tenant", "t")
	part, _ := parts.CreateFormFile("file", "f")
	_, _ = part.Write([]byte(strings.Repeat("x", 10_000)))
	_ = parts.Close()
	answer := ask(h, withBody(form.String()), withHeader("Content-Type", parts.FormDataContentType()))
	if wantStatus(t, answer, http.StatusOK); body(t, answer) != "t" {
		t.Errorf("the handler finds %q", body(t, answer))
	}
	if len(files) != 2 {
		t.Errorf("there were %d files", len(files))
	}
	for _, name := range files {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	s.want(1, 1)
}

// The fingerprint of a consumed body would be that of an empty one. A request with another amount
// and the same key would get a replay.
func TestBody_ReadByOuterMiddlewareIsRejected(t *testing.T) {
	t.Parallel()
	const form = "amount=10"
	sent := func(length int64) edit {
		return func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(form)), length
		}
	}
	for name, test := range map[string]struct {
		length  int64
		inFront func(r *http.Request)
		status  int
	}{
		"form, in chunks":          {-1, func(r *http.Request) { r.FormValue("csrf") }, 500},
		"form, with its length":    {int64(len(form)), func(r *http.Request) { r.FormValue("csrf") }, 500},
		"all, with its length":     {int64(len(form)), func(r *http.Request) { _, _ = io.ReadAll(r.Body) }, 500},
		"form, and put back":       {-1, func(r *http.Request) { r.FormValue("csrf"); r.Body = io.NopCloser(strings.NewReader(form)) }, 201},
		"form of the query string": {-1, func(r *http.Request) { r.URL.RawQuery = "csrf=1"; _ = r.URL.Query() }, 201},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			inner := s.middleware().Wrap(http.HandlerFunc(s.order))
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				test.inFront(r)
				inner.ServeHTTP(w, r)
			})
			wantStatus(t, ask(h, sent(test.length)), test.status)
			if refused := test.status == 500; refused != strings.Contains(s.logs.String(), "the body was read before it reached the middleware") {
				t.Errorf("the log says %s", s.logs.String())
			}
		})
	}
}
