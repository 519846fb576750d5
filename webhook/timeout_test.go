package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// answersAfter is a RoundTripper that answers after a duration and stores the requests.
type answersAfter struct {
	wait time.Duration
	ids  []string
}

func (a *answersAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	a.ids = append(a.ids, r.Header.Get("Webhook-Id"))
	select {
	case <-time.After(a.wait):
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// publishTo publishes messages of one key, in a call with a timeout.
func publishTo(t *testing.T, base http.RoundTripper, timeout, call time.Duration, messages ...outbox.Message) (map[string]error, time.Duration) {
	t.Helper()
	p := newPublisher(t, map[string]webhook.Endpoint{"t": {URL: "http://example.com", Secrets: []string{standardSecret}}}, func(c *webhook.PublisherConfig) {
		c.Base, c.Timeout = base, timeout
	})
	ctx, cancel := context.WithTimeout(t.Context(), call)
	defer cancel()
	begin := time.Now()
	return failedOf(t, p.Publish(ctx, messages)), time.Since(begin)
}

// The relay would take an error of a context for the end of the call, and count no attempt.
func TestPublisher_ReportsATimeoutOfTheEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed, took := publishTo(t, &answersAfter{wait: time.Hour}, 7*time.Second, time.Minute, message("t", "k", 1), message("t", "k", 2))
		if len(failed) != 2 || !errors.Is(failed["t/k/1"], webhook.ErrTimeout) || !errors.Is(failed["t/k/2"], webhook.ErrHeldBack) || took != 7*time.Second {
			t.Errorf("after %v: %v", took, failed)
		}
		for id, err := range failed {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// With any Timeout, the message fails before the context of the call ends.
func TestPublisher_NamesATimeoutBeforeTheCallEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed, took := publishTo(t, &answersAfter{wait: time.Hour}, 24*time.Hour, 30*time.Second, message("t", "k", 1))
		if !errors.Is(failed["t/k/1"], webhook.ErrTimeout) || took != 15*time.Second {
			t.Errorf("after %v: %v", took, failed)
		}
	})
}

// A message that the end of the call could interrupt is in the next call, and counts no attempt.
func TestPublisher_SendsNothingWithoutTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &answersAfter{wait: 8 * time.Second}
		failed, took := publishTo(t, slow, 15*time.Second, 30*time.Second, message("t", "k", 1), message("t", "k", 2), message("t", "k", 3), message("t", "k", 4))
		if diff := cmp.Diff([]string{"t/k/1", "t/k/2"}, slow.ids); diff != "" || took != 16*time.Second {
			t.Errorf("after %v; what was sent (-want +got):\n%s", took, diff)
		}
		if !errors.Is(failed["t/k/3"], context.DeadlineExceeded) || !errors.Is(failed["t/k/4"], context.DeadlineExceeded) || len(failed) != 2 {
			t.Error(failed)
		}
	})
}
