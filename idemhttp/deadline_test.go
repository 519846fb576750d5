package idemhttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
