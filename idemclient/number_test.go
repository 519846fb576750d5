package idemclient_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

func TestAttemptNumber_IsSentWithRepetitions(t *testing.T) {
	t.Parallel()
	as := func(with func(context.Context, string, time.Time) context.Context) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return with(ctx, "order-1", time.Now()) }
	}
	for _, row := range []struct {
		name, method string
		ctx          func(context.Context) context.Context
		header       http.Header
		want         []string // what three attempts say
	}{
		{"automatic key", "POST", nil, nil, []string{"", "2", "3"}},
		{"key in the context", "POST", as(func(ctx context.Context, key string, _ time.Time) context.Context {
			return idemclient.WithKey(ctx, key)
		}), nil, []string{"", "2", "3"}},
		{"key of an earlier time", "POST", as(idemclient.WithKeyMadeAt), nil, []string{"", "2", "3"}},
		{"key that was sent before", "POST", as(idemclient.WithKeySentBefore), nil, []string{"2", "3", "4"}},
		{"key in the header", "POST", nil, http.Header{"Idempotency-Key": {"order-1"}}, []string{"", "2", "3"}},
		{"key in the header that was sent before", "POST", as(idemclient.WithKeySentBefore), http.Header{"Idempotency-Key": {"order-1"}}, []string{"2", "3", "4"}},
		{"another key in the header", "POST", as(idemclient.WithKeySentBefore), http.Header{"Idempotency-Key": {"order-2"}}, []string{"", "2", "3"}},
		{"number of the caller's", "POST", nil, http.Header{"Idempotency-Attempt": {"7"}}, []string{"7", "2", "3"}},
		{"number of the caller's, no key", "PUT", nil, http.Header{"Idempotency-Attempt": {"7"}}, []string{"", "", ""}},
		{"no key", "PUT", nil, nil, []string{"", "", ""}},
		{"no key for this method", "GET", as(idemclient.WithKeySentBefore), nil, []string{"", "", ""}},
	} {
		bubble(t, row.name, func(t *testing.T) {
			hosts := &travel{end: failure(io.EOF)}
			ctx := t.Context()
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			req := request(t, ctx, row.method, somewhere, strings.NewReader(order))
			maps.Copy(req.Header, row.header)
			header := req.Header.Clone()
			if _, err := (&idemclient.Transport{Base: hosts, MaxAttempts: 3}).RoundTrip(req); err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(header, req.Header); diff != "" {
				t.Errorf("the header of the caller's request changed:\n%s", diff)
			}
			var got []string
			for _, s := range hosts.seen {
				got = append(got, s.Attempt)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("what the attempts say (-want +got):\n%s", diff)
			}
		})
	}
}

// A request to a new URL is a repetition only if the key was sent before the call began. A foreign
// host gets no number.
func TestAttemptNumber_AfterARedirect(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		with func(context.Context, string, time.Time) context.Context
		to   string
		want []string
	}{
		{"new key", idemclient.WithKeyMadeAt, "/new", []string{`"k" `, `"k" `, `"k" 2`}},
		{"key that was sent before", idemclient.WithKeySentBefore, "/new", []string{`"k" 2`, `"k" 2`, `"k" 3`}},
		{"key that was sent before, another host", idemclient.WithKeySentBefore, "http://other.example/", []string{`"k" 2`, " ", " "}},
	} {
		bubble(t, row.name, func(t *testing.T) {
			hosts := &travel{status: 307, urls: []string{row.to}, end: failure(io.EOF)}
			client := &http.Client{Transport: &idemclient.Transport{Base: hosts, MaxAttempts: 2}}
			if _, err := client.Do(request(t, row.with(t.Context(), "k", time.Now()), "PUT", somewhere, nil)); err == nil {
				t.Fatal("no error")
			}
			var got []string
			for _, s := range hosts.seen {
				got = append(got, s.Key+" "+s.Attempt)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("the keys and numbers of the requests (-want +got):\n%s", diff)
			}
		})
	}
}
