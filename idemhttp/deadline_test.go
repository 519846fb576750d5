package idemhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/idemhttp"
)

// Without a deadline, a database that accepts connections and never responds would block a request
// forever.
func TestDeadline_EndsARequestOnASilentDatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config := s.pool.Config()
	config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port)
	config.ConnConfig.Fallbacks = nil
	config.ConnConfig.ConnectTimeout = 0
	silent, err := pgxNew(t, config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(silent, idemhttp.Config{Scope: byTenant, Optional: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	h := m.Wrap(http.HandlerFunc(s.order))
	for name, edits := range map[string][]edit{"with a key": nil, "without a key": {withoutKey()}} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		answer := ask(h, append(edits, withContext(ctx))...)
		problem := wantProblem(t, answer, http.StatusServiceUnavailable, "unavailable")
		if problem["retryable"] != true || answer.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v, Retry-After %q", name, problem, answer.Header.Get("Retry-After"))
		}
	}
}

// net/http treats a client that closes its half of the connection as gone. The client can still
// read the answer.
func TestHalfClose_BeforeCommitGets503(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	inside := make(chan struct{})
	var gone chan struct{}
	server, left := watched(t, s.middleware().Wrap(s.answering(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-gone
		w.WriteHeader(http.StatusCreated)
	})))
	gone = left
	client := dial(t, server)
	client.send(t)
	<-inside
	client.closeHalf(t)
	wantProblem(t, client.answer(t), http.StatusServiceUnavailable, "unavailable")
	s.want(0, 0)
}

// client is one end of a connection, without net/http.
type client struct{ *net.TCPConn }

func dial(t *testing.T, server *httptest.Server) client {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn.(*net.TCPConn)}
}

func (c client) send(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintf(c, "POST /orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer t:secret\r\nIdempotency-Key: k\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(teapot), teapot)
	if err != nil {
		t.Fatal(err)
	}
}

func (c client) closeHalf(t *testing.T) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func (c client) answer(t *testing.T) *http.Response {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body = io.NopCloser(strings.NewReader(string(text)))
	return response
}
