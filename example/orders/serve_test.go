package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgtest"
)

// announcedURL returns the URL in the first line of output of a server, and discards the rest.
func announcedURL(t *testing.T, out io.Reader) string {
	t.Helper()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the first line is %q, %v", first, err)
	}
	go io.Copy(io.Discard, lines)
	return url
}

// The test runs the whole shop with all of its processes.
func TestServe_KillNeedsACredential(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, announced := io.Pipe()
	served := make(chan error, 1)
	t.Setenv("FULFILMENT_DATABASE_URL", pgtest.EmptyDSN(t))
	go func() { served <- serve(ctx, pgtest.EmptyDSN(t), "127.0.0.1:0", time.Hour, announced) }()
	url := announcedURL(t, out)
	send := func(method, path, credential string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+credential)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	for _, request := range []struct{ method, path string }{{"POST", "/kill"}, {"GET", "/charges"}} {
		if got := send(request.method, request.path, "stranger"); got != http.StatusUnauthorized {
			t.Errorf("%s: without a valid credential: answered %d", request.path, got)
		}
	}
	if got := send("GET", "/orders", "acme-key"); got != http.StatusOK {
		t.Errorf("before the kill: answered %d", got)
	}
	if got := send("POST", "/kill", "acme-key"); got != http.StatusNoContent {
		t.Errorf("answered %d", got)
	}
	for send("GET", "/orders", "acme-key") != http.StatusOK { // until the service is restarted
		time.Sleep(10 * time.Millisecond)
	}
	interrupt()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestService_HasNoFaults(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r, err := http.NewRequest(http.MethodPost, "/kill", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do(r, withCredential("acme-key")).Code; got != http.StatusNotFound {
		t.Errorf("answered %d", got)
	}
	wantStatus(t, s.order(withMishap("lost-answer")), http.StatusCreated)
}
