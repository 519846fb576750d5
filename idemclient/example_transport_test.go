package idemclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// orders is a service that loses the answer to the first request with a key, and replays it to the
// second.
func orders() *httptest.Server {
	var mu sync.Mutex // requests come on connections of their own
	placed := map[string]int{}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if placed[key] == 0 {
			placed[key] = len(placed) + 1
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Idempotency-Replayed", "true")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"order":%d}`, placed[key])
	}))
}

// The key is made by the Transport, and is the same for all attempts of the call.
func ExampleNewClient() {
	server := orders()
	defer server.Close()

	client := idemclient.NewClient(nil)
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"sku":"teapot"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	// Output: 201 {"order":1}
}

// A call that was not given a key has failed. Its error leads to the key that was made for it.
func ExampleError_FullKey() {
	server := orders()
	defer server.Close()

	client := &http.Client{Transport: &idemclient.Transport{MaxAttempts: 1}}
	_, err := client.Post(server.URL, "application/json", strings.NewReader(`{"sku":"teapot"}`))
	failed, ok := errors.AsType[*idemclient.Error](err)
	if !ok {
		fmt.Println(err)
		return
	}
	key, made := failed.FullKey() // to be kept for as long as the order has no answer

	ctx := idemclient.WithKeySentBefore(context.Background(), key, made)
	answer, err := place(ctx, client, server.URL, `{"sku":"teapot"}`)
	fmt.Println(answer, err)
	// Output: 201 {"order":1} <nil>
}

// The key was made and stored earlier, but not sent yet.
func ExampleWithKeyMadeAt() {
	server := orders()
	defer server.Close()

	stored := struct {
		key  string
		made time.Time
	}{idemclient.NewKey(), time.Now().Add(-time.Hour)}

	ctx := idemclient.WithKeyMadeAt(context.Background(), stored.key, stored.made)
	answer, err := place(ctx, idemclient.NewClient(nil), server.URL, `{"sku":"teapot"}`)
	if errors.Is(err, idemclient.ErrKeyTooOld) {
		fmt.Println("ask a person the outcome of the order")
		return
	}
	fmt.Println(answer, err)
	// Output: 201 {"order":1} <nil>
}

func ExampleTransport() {
	server := orders()
	defer server.Close()

	client := &http.Client{Transport: &idemclient.Transport{
		MaxAttempts:    3,
		AttemptTimeout: 2 * time.Second,
		Observe: func(ctx context.Context, a idemclient.Attempt) {
			slog.DebugContext(ctx, "attempt", "host", a.Host, "key", a.Key, "number", a.Number,
				"status", a.Status, "error", a.Err, "wait", a.Wait, "stop", a.Stop)
		},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for the call, with all of its attempts
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"sku":"teapot"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	last, _ := idemclient.LastAttempt(resp)
	fmt.Println(last.Number, last.Status, last.Stop)
	// Output: 2 201 final
}
