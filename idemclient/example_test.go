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
	"time"

	"github.com/idem-go/idem/idemclient"
)

// orders is a service that loses the answer to the first request with a key, and replays it to the second.
func orders() *httptest.Server {
	placed := map[string]int{}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
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

func Example() {
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

// Somebody who must survive a crash stores the key with what is to be done, before it is done.
func ExampleWithKeyMadeAt() {
	server := orders()
	defer server.Close()

	stored := struct {
		key  string
		made time.Time
	}{idemclient.NewKey(), time.Now()}

	ctx := idemclient.WithKeyMadeAt(context.Background(), stored.key, stored.made)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"sku":"teapot"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := idemclient.NewClient(nil).Do(req)
	if errors.Is(err, idemclient.ErrKeyTooOld) {
		fmt.Println("ask a person what became of the order")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 201 Created
}

func ExampleTransport() {
	server := orders()
	defer server.Close()

	client := &http.Client{
		Timeout: 10 * time.Second, // of a call, with all of its attempts
		Transport: &idemclient.Transport{
			MaxAttempts:    3,
			AttemptTimeout: 2 * time.Second,
			Observe: func(ctx context.Context, a idemclient.Attempt) {
				slog.DebugContext(ctx, "attempt", "host", a.Host, "key", a.Key, "number", a.Number,
					"status", a.Status, "error", a.Err, "wait", a.Wait, "stop", a.Stop)
			},
		},
	}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"sku":"teapot"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	last, _ := idemclient.LastAttempt(resp)
	fmt.Println(last.Number, last.Status, last.Stop)
	// Output: 2 201 final
}
