package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	for try := range 5 {
		if s.slowOrderHoldsUpNoOther(t, fmt.Sprint("k", try)) {
			return
		}
	}
	t.Error("whatever is done beside the slow order is over behind it, or that is placed although no caller waits for it")
}

// slowOrderHoldsUpNoOther reports whether all that is done beside the slow order is over before that would be. A busy machine may take longer.
func (s *shop) slowOrderHoldsUpNoOther(t *testing.T, key string) bool {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	began := time.Now()
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- s.order(withKey(key), withMishap("slow=10s"), within(ctx)) }()
	for held := false; !held; {
		status, err := idem.Lookup(t.Context(), s.pool, scopeOf("acme"), key)
		if err != nil {
			t.Fatal(err)
		}
		held = status.State == idem.StateProcessing || status.State == idem.StateCompleted
	}
	wantStatus(t, s.order(withKey(key), withCredential("globex-key")), http.StatusCreated) // is not held up
	hangUp()
	placed := (<-answer).Code == http.StatusCreated
	wantStatus(t, s.order(withKey(key)), http.StatusCreated) // nothing is locked any more
	return !placed && time.Since(began) < slowest
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
