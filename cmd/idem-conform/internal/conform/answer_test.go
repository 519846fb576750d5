package conform_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
