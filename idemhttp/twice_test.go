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

// The first answer is not committed, whatever Decide returns for the failure. The failure may be
// recorded.
func TestRecorder_LaterFailureReplacesTheAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		decide  func(int) idemhttp.Decision
		records int
	}{
		"success":                {201, nil, 0},
		"rejection":              {404, nil, 0},
		"success, like Stripe":   {201, idemhttp.StripeConfig().Decide, 1},
		"success, if all commit": {201, func(int) idemhttp.Decision { return idemhttp.Commit }, 1},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			h := s.middleware(optional, func(c *idemhttp.Config) { c.Decide = test.decide }).Wrap(s.answering(failsAfter(test.status)))
			for i, edit := range []edit{withoutKey(), withKey("k"), withKey("k")} {
				response := ask(h, edit)
				wantStatus(t, response, http.StatusInternalServerError)
				if got := body(t, response); got != "broken" || response.Header.Get("Content-Length") == "15" {
					t.Errorf("answered %v %q", response.Header, got)
				}
				if replayed := response.Header.Get("Idempotency-Replayed") == "true"; replayed != (i == 2 && test.records == 1) {
					t.Errorf("request %d is answered %v", i, response.Header)
				}
			}
			s.want(0, test.records)
			said := s.logs.String()
			if strings.Count(said, "the handler failed after its answer") != 3-test.records || !strings.Contains(said, fmt.Sprint("status=", test.status)) {
				t.Errorf("the log says %s", said)
			}
		})
	}
}
