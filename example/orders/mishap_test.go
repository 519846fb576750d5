package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

func withMishap(wanted string) edit { return withHeader("Mishap", wanted) }

func TestLostAnswerWasCommitted(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	server := httptest.NewServer(s.handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader(twoTeapots))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // so that net/http does not repeat it
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

func TestSlowOrderStandsStillInsideItsTransaction(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	soon, cancel := context.WithTimeout(t.Context(), slowest) // is over before the slow order is
	defer cancel()
	ctx, hangUp := context.WithCancel(soon)
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- s.order(withMishap("slow=10s"), within(ctx)) }()
	for held := false; !held; {
		status, err := idem.Lookup(soon, s.pool, scopeOf("acme"), "k")
		if err != nil || status.State == idem.StateCompleted {
			t.Fatalf("%+v, %v; want a key that is held", status, err)
		}
		held = status.State == idem.StateProcessing
	}
	wantStatus(t, s.order(withCredential("globex-key"), within(soon)), http.StatusCreated) // is not held up
	hangUp()
	if got := <-answer; got.Code == http.StatusCreated {
		t.Error("the order was placed although no caller waited for it")
	}
	wantStatus(t, s.order(within(soon)), http.StatusCreated) // nothing is locked any more
}

func TestMishapThatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	for _, wanted := range []string{"lost", "slow", "slow=1h", "slow=-1s", "lost-answer, fire"} {
		wantProblem(t, s.order(withMishap(wanted)), http.StatusBadRequest, ourType+"bad-request")
	}
	s.wantOrders(0)
}

func within(ctx context.Context) edit {
	return func(r *http.Request) { *r = *r.WithContext(ctx) }
}
