package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func withMishap(wanted string) edit { return withHeader("Mishap", wanted) }

func TestMishaps_LostAnswerIsCommitted(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	server := httptest.NewServer(s.handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader(twoTeapots))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // without it, net/http does not repeat the request
	for _, edit := range []edit{withKey("k"), withCredential("acme-key"), withHeader("Content-Type", "application/json"), withMishap("lost-answer")} {
		edit(r)
	}
	response, err := server.Client().Do(r)
	if err == nil {
		response.Body.Close()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("answered %v, %v; want the connection cut", response, err)
	}
	s.wantOrders(1)
	retry := s.order()
	if retry.Code != http.StatusCreated || retry.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("the retry was answered %d, %v; want a replay", retry.Code, retry.Header())
	}
	s.wantOrders(1)
}

func TestMishaps_UnknownFaultIsRefused(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	for _, wanted := range []string{"lost", "slow", "slow=1h", "slow=-1s", "lost-answer, fire"} {
		wantProblem(t, s.order(withMishap(wanted)), http.StatusBadRequest, ourType+"bad-request")
	}
	s.wantOrders(0)
}
