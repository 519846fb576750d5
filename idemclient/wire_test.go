package idemclient_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server would not notice that the client goes away
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// patient has pauses that a test does not notice, and a budget and limits of time that it does not
// reach.
func patient(base http.RoundTripper) *idemclient.Transport {
	return &idemclient.Transport{
		Base: base, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, RetryRatio: 100, RetryBurst: 100,
		AttemptTimeout: -1, MaxElapsed: -1,
	}
}

func TestResponse_Streams(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	var n atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			unavailable(w, r)
			return
		}
		w.Header().Set("Trailer", "Checksum")
		for i := range 3 {
			fmt.Fprintln(w, "event", i)
			w.(http.Flusher).Flush()
			<-next
		}
		w.Header().Set("Checksum", "42")
	})
	transport := patient(server.Client().Transport)
	resp, err := transport.RoundTrip(post(t, t.Context(), server.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n') // while the handler waits to be told that it was read
		if line != fmt.Sprintf("event %d\n", i) || err != nil {
			t.Fatalf("line %d is %q, error %v", i, line, err)
		}
		next <- struct{}{}
	}
	if _, err := lines.ReadByte(); err != io.EOF || resp.Trailer.Get("Checksum") != "42" {
		t.Errorf("at the end: %v, trailer %v", err, resp.Trailer)
	}
}

// The caller gets the response that the server sent, even if the Transport has read part of it.
func TestResponse_IsUnchanged(t *testing.T) {
	t.Parallel()
	long := `{"retryable":false,"detail":"` + strings.Repeat("x", 200_000) + `"}`
	for _, row := range []struct {
		name   string
		status int
		body   string
	}{
		{"problem that was read", 503, `{"retryable":false,"detail":"no"}` + "\n"},
		{"problem beyond what is read", 409, long},
		{"problem without a body", 409, ""},
		{"problem that is not one", 409, "<html>"},
		{"problem of a final status", 422, `{"retryable":true}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header()["Link"] = []string{"<a>", "<b>"}
				w.WriteHeader(row.status)
				io.WriteString(w, row.body)
			})
			base := server.Client().Transport
			want, err := base.RoundTrip(post(t, t.Context(), server.URL))
			if err != nil {
				t.Fatal(err)
			}
			got, err := patient(base).RoundTrip(post(t, t.Context(), server.URL))
			if err != nil {
				t.Fatal(err)
			}
			want.Header.Del("Date")
			got.Header.Del("Date")
			if diff := cmp.Diff(want.Header, got.Header); diff != "" {
				t.Errorf("the header changed:\n%s", diff)
			}
			if text := finish(t, got); text != finish(t, want) || text != row.body || got.ContentLength != want.ContentLength || got.Status != want.Status {
				t.Errorf("the response changed: %d bytes of %d", len(text), len(row.body))
			}
		})
	}
}

// A body that broke off while the Transport read it breaks off in the same place for the caller.
func TestResponse_ProblemThatBrokeOffStaysBroken(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"retryable"`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := patient(server.Client().Transport).RoundTrip(post(t, t.Context(), server.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != `{"retryable"` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the body is %q, error %v", text, err)
	}
}

func TestResponse_UpgradedConnectionBelongsToTheCaller(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, stream, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := stream.ReadString('\n')
		io.WriteString(conn, line)
	})
	req := request(t, t.Context(), http.MethodGet, server.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := patient(server.Client().Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body is a %T that cannot be written to", resp.Body)
	}
	io.WriteString(conn, "hello\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("the echo is %q, error %v", line, err)
	}
}

func TestTransport_HTTP2(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var arrived []received
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		arrived = append(arrived, received{Method: r.Proto, Keys: r.Header.Values("Idempotency-Key"), Body: string(body)})
		n := len(arrived)
		mu.Unlock()
		switch n {
		case 1:
			unavailable(w, r)
		case 2:
			abort(w, r) // resets the stream
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	call(t, patient(server.Client().Transport).RoundTrip, post(t, idemclient.WithKey(t.Context(), "order-1"), server.URL))
	one := received{Method: "HTTP/2.0", Keys: []string{`"order-1"`}, Body: order}
	if diff := cmp.Diff([]received{one, one, one}, arrived); diff != "" {
		t.Errorf("what arrived (-want +got):\n%s", diff)
	}
}
