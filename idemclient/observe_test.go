package idemclient_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/idemclient"
)

const secret = "b1946ac9-2492-4d23-8f2b-secret-tail"

func TestObserve_ReportsEveryAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type traced struct{}
		server := &script{answers: []answer{failure(io.EOF), status(503, "Retry-After", "2"), func(req *http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second)
			return status(201)(req)
		}}}
		var got []idemclient.Attempt
		transport := &idemclient.Transport{Base: server, Observe: func(ctx context.Context, attempt idemclient.Attempt) {
			if ctx.Value(traced{}) != "yes" {
				t.Error("the context is not the caller's")
			}
			got = append(got, attempt)
		}}
		ctx := context.WithValue(idemclient.WithKey(t.Context(), secret), traced{}, "yes")
		began := time.Now()
		req := post(t, ctx, somewhere)
		req.Host = "what.the.header.says"
		resp := call(t, transport.RoundTrip, req)
		one := idemclient.Attempt{Method: "POST", Host: "orders.example", Key: `b194…(35)`, Sent: 1}
		first, second, third := one, one, one
		first.Number, first.Err = 1, io.EOF
		second.Number, second.Status = 2, 503
		third.Number, third.Status, third.Stop, third.Duration = 3, 201, idemclient.StopFinal, 3*time.Second
		want := []idemclient.Attempt{first, second, third}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(idemclient.Attempt{}, "Wait"), cmpopts.IgnoreUnexported(idemclient.Attempt{}), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("what was observed (-want +got):\n%s", diff)
		}
		for _, attempt := range got {
			if key, made := attempt.FullKey(); key != secret || !made.Equal(began) {
				t.Errorf("attempt %d leads to the key %q, made at %v", attempt.Number, key, made)
			}
		}
		if got[0].Wait > 250*time.Millisecond || got[1].Wait < 2*time.Second || got[2].Wait != 0 {
			t.Errorf("the pauses are %v, %v and %v", got[0].Wait, got[1].Wait, got[2].Wait)
		}
		if last, ok := idemclient.LastAttempt(resp); !ok || last.Number != 3 || last.Stop != idemclient.StopFinal {
			t.Errorf("the response says %+v", last)
		}
	})
}

// Some errors of http.Client itself do not lead to the key, but Observe gets it.
func TestObserve_HasTheKeyThatTheErrorLacks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answers []answer
		stop    idemclient.Stop
	}{
		"the Timeout of http.Client":          {[]answer{failure(io.EOF), never}, idemclient.StopEnded},
		"a redirect with an invalid Location": {[]answer{status(503), status(307, "Location", "://")}, idemclient.StopFinal},
	} {
		bubble(t, name, func(t *testing.T) {
			server, observed := &script{answers: row.answers}, &observer{}
			client := &http.Client{Transport: &idemclient.Transport{Base: server, Observe: observed.observe}, Timeout: 5 * time.Second}
			began := time.Now()
			resp, err := client.Do(post(t, t.Context(), somewhere))
			if err == nil {
				resp.Body.Close()
				t.Fatalf("status %d", resp.StatusCode)
			}
			got, sent := observed.all(), server.keys()
			if len(got) != 2 || len(sent) != 2 || got[1].Stop != row.stop {
				t.Fatalf("%d requests, observed %+v", len(sent), got)
			}
			for i, attempt := range got {
				if key, made := attempt.FullKey(); sent[i][0] != `"`+key+`"` || !made.Equal(began) {
					t.Errorf("attempt %d with the key %s leads to the key %q, made at %v", attempt.Number, sent[i], key, made)
				}
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
