package conform_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/cmd/idem-conform/internal/conform"
)

// keeper is a server that stores the first answer of a key.
type keeper struct {
	mu     sync.Mutex
	kept   map[string]int
	key    func(string) string
	answer func(w http.ResponseWriter, id int, again bool)
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	key := r.Header.Get("Authorization") + k.key(r.Header.Get("Idempotency-Key"))
	k.mu.Lock()
	id, again := k.kept[key]
	if !again {
		id = len(k.kept) + 1
		k.kept[key] = id
	}
	k.mu.Unlock()
	k.answer(w, id, again)
}

func serve(t *testing.T, k *keeper) string {
	t.Helper()
	k.kept = map[string]int{}
	if k.key == nil {
		k.key = func(key string) string { return key }
	}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	return server.URL
}

// A replay may have its members in another order. Stripe requires equal bytes.
func TestRepetition_ComparesJSONByMeaning(t *testing.T) {
	t.Parallel()
	address := serve(t, &keeper{answer: func(w http.ResponseWriter, id int, again bool) {
		if again {
			fmt.Fprintf(w, `{"placed": true, "at": 1.50e2, "id": %d}`, id)
			return
		}
		fmt.Fprintf(w, `{"id":%d,"placed":true,"at":150}`, id)
	}})
	for profile, want := range map[string]conform.Verdict{"ietf": conform.Kept, "acp": conform.Kept, "stripe": conform.Broken} {
		if got := verdicts(t, options(t, profile, address))["repetition"]; got.Verdict != want {
			t.Errorf("%s: %s %s, want %s", profile, got.Verdict, got.Why, want)
		}
	}
}

// In profile stripe-v2 a replay may be an updated answer for the same object.
func TestRepetition_OfStripeV2ComparesIDs(t *testing.T) {
	t.Parallel()
	address := serve(t, &keeper{answer: func(w http.ResponseWriter, id int, again bool) {
		if !again {
			w.WriteHeader(http.StatusCreated)
		}
		fmt.Fprintf(w, `{"id":%d,"paid":%t}`, id, again)
	}})
	for profile, want := range map[string]conform.Verdict{"stripe-v2": conform.Kept, "ucp": conform.Broken} {
		if got := verdicts(t, options(t, profile, address))["repetition"]; got.Verdict != want {
			t.Errorf("%s: %s %s, want %s", profile, got.Verdict, got.Why, want)
		}
	}
}

// A server that does not mark replays stores failures if the answer to a failed request depends on
// the key alone.
func TestFailedRequest_WithoutMarks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   func(key string, n int64) string
		want   conform.Verdict
	}{
		"the failure is stored": {402, func(key string, _ int64) string { return key }, conform.Broken},
		"it is executed again":  {402, func(_ string, n int64) string { return fmt.Sprint(n) }, conform.Kept},
		"failures are equal":    {402, func(string, int64) string { return "declined" }, conform.NotTried},
		"it does not fail":      {201, func(_ string, n int64) string { return fmt.Sprint(n) }, conform.NotTried},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var executed atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if n := executed.Add(1); bytes.Contains(body, []byte("declined")) {
					w.WriteHeader(test.status)
					fmt.Fprint(w, test.body(r.Header.Get("Idempotency-Key"), n))
				} else {
					fmt.Fprint(w, n)
				}
			}))
			t.Cleanup(server.Close)
			o := options(t, "stripe-v2", server.URL)
			if got := verdicts(t, o)["failed-request"]; got.Verdict != test.want || got.Why == "" != (test.want == conform.Kept) {
				t.Errorf("%+v", got)
			}
			if o.Failing = ""; test.want == conform.Kept {
				if got := verdicts(t, o)["failed-request"]; got.Verdict != conform.NotTried || !strings.Contains(got.Why, "--failing-body") {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

func TestLongKey_TruncationIsFound(t *testing.T) {
	t.Parallel()
	address := serve(t, &keeper{
		key:    func(key string) string { return strings.Trim(key, `"`)[:min(255, len(strings.Trim(key, `"`)))] },
		answer: func(w http.ResponseWriter, id int, _ bool) { fmt.Fprintf(w, `{"id":%d}`, id) },
	})
	if got := verdicts(t, options(t, "ietf", address))["long-key"]; got.Verdict != conform.Broken {
		t.Errorf("%+v", got)
	}
}

func TestAfterACut_LostBodyIsFound(t *testing.T) {
	t.Parallel()
	address := serve(t, &keeper{answer: func(w http.ResponseWriter, id int, _ bool) {
		w.WriteHeader(http.StatusCreated)
		if id != 3 { // the third request is the one that is cut
			fmt.Fprintf(w, `{"id":%d}`, id)
		}
	}})
	if got := verdicts(t, options(t, "ietf", address))["after-a-cut"]; got.Verdict != conform.Broken {
		t.Errorf("%+v", got)
	}
}
