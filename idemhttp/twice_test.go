package idemhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/idemhttp"
)

// failsAfter answers with status and then with 500, like a handler with a recovery inside of Wrap.
func failsAfter(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "15")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"placed":true}`)
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "broken")
	}
}

func TestRecorder_LaterFailureReplacesTheAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 404} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			h := s.middleware(func(c *idemhttp.Config) { c.Optional = true }).Wrap(s.answering(failsAfter(status)))
			for _, edit := range []edit{withKey("k"), withKey("k"), withoutKey()} {
				response := ask(h, edit)
				wantStatus(t, response, http.StatusInternalServerError)
				if got := body(t, response); got != "broken" || response.Header.Get("Content-Length") == "15" || response.Header.Get("Idempotency-Replayed") != "" {
					t.Errorf("answered %v %q", response.Header, got)
				}
			}
			s.want(0, 0)
			if said := s.logs.String(); strings.Count(said, "the handler failed after its answer") != 3 || !strings.Contains(said, fmt.Sprint("status=", status)) {
				t.Errorf("the log says %s", said)
			}
		})
	}
}

// The success is not committed, whatever Decide returns for the failure. The failure may be
// recorded.
func TestRecorder_LaterFailureIsNeverCommitted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		decide  func(int) idemhttp.Decision
		records int
	}{
		"like Stripe": {idemhttp.StripeConfig().Decide, 1},
		"all commit":  {func(int) idemhttp.Decision { return idemhttp.Commit }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			h := s.middleware(func(c *idemhttp.Config) { c.Decide = test.decide }).Wrap(s.answering(failsAfter(201)))
			first := ask(h)
			wantStatus(t, first, http.StatusInternalServerError)
			wantReplay(t, first, ask(h))
			s.want(0, test.records)
		})
	}
}
