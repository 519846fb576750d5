package idemhttp_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemhttp"
)

// unencryptedHTTP2 is for a client that knows that the server speaks HTTP/2 without TLS.
func unencryptedHTTP2() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

func startServer(t *testing.T, h http.Handler, protocols *http.Protocols) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = protocols
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func newTransport(t *testing.T, protocols *http.Protocols) *http.Transport {
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func TestWire_HTTP1AndHTTP2AndReverseProxy(t *testing.T) {
	t.Parallel()
	binary := bytes.Repeat([]byte{0, 0xff, '\n'}, 10_000)
	for _, test := range []struct {
		name      string
		protocols *http.Protocols
		proto     string
		proxied   bool
	}{
		{"HTTP/1.1", nil, "HTTP/1.1", false},
		{"HTTP/2 without TLS", unencryptedHTTP2(), "HTTP/2.0", false},
		{"reverse proxy", nil, "HTTP/1.1", true},
		{"reverse proxy, HTTP/2 behind it", unencryptedHTTP2(), "HTTP/2.0", true},
	} {
		inShop(t, test.name, func(t *testing.T, s *shop) {
			address := startServer(t, s.middleware().Wrap(s.answering(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != test.proto {
					t.Errorf("the request came by %s", r.Proto)
				}
				w.Header()["Link"] = []string{"</a>", "</b>"}
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(binary)
			})), test.protocols)
			client := newTransport(t, test.protocols)
			if test.proxied {
				target, err := url.Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				proxy := httputil.NewSingleHostReverseProxy(target)
				proxy.Transport = client
				address, client = startServer(t, proxy, nil), newTransport(t, nil)
			}
			want := exchanged{
				Status: http.StatusCreated, Body: string(binary),
				Header: http.Header{"Link": {"</a>", "</b>"}, "Content-Type": {"application/octet-stream"}},
			}
			for range 2 {
				if diff := cmp.Diff(want, own(over(t, client, address, "k"))); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
			s.want(1, 1)
		})
	}
}

// net/http repeats a POST by itself if it has an Idempotency-Key and a GetBody, and an idle
// connection was closed before an answer came. A proxy that buffers the body does the same.
func TestWire_RetryOfAProxyGetsTheReplay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(http.HandlerFunc(s.order))
	var attempts atomic.Int64
	backend := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return // it leaves an idle connection
		}
		if attempts.Add(1) == 1 {
			h.ServeHTTP(httptest.NewRecorder(), r) // it is done, and the answer is lost
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
			return
		}
		h.ServeHTTP(w, r)
	}), nil)
	target, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: newTransport(t, nil),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			text, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Error(err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(text))
			r.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		},
	}
	address := startServer(t, proxy, nil)
	warm, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	warm.Body.Close()

	got := over(t, newTransport(t, nil), address, "k")
	if got.Status != http.StatusCreated || got.Header.Get("Idempotency-Replayed") != "true" || got.Header.Get("Location") == "" {
		t.Errorf("%+v", got)
	}
	if n := attempts.Load(); n != 2 || s.runs.Load() != 1 {
		t.Errorf("%d attempts reached the service, %d its handler", n, s.runs.Load())
	}
	s.want(1, 1)
}

// The dates of a replay are those of the record.
func TestReplay_HasRecordedAndExpiryDates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.middleware().Wrap(http.HandlerFunc(s.order))
	first := ask(h)
	for _, name := range []string{idemhttp.OriginalDateHeader, idemhttp.ExpiresHeader} {
		if first.Header.Get(name) != "" {
			t.Errorf("%s in the first answer", name)
		}
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.records set
		completed_at = '2026-11-21 10:00:00.9+00', expires_at = '2099-11-22 10:00:00+00'`); err != nil {
		t.Fatal(err)
	}
	again := ask(h)
	wantReplay(t, first, again)
	if got := again.Header.Get("Idempotency-Original-Date"); got != "Sat, 21 Nov 2026 10:00:00 GMT" {
		t.Error(got)
	}
	if got := again.Header.Get("Idempotency-Expires"); got != "Sun, 22 Nov 2099 10:00:00 GMT" {
		t.Error(got)
	}
}
