package idemclient_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

// travel is a server for all hosts. It redirects each request to the next URL, and answers at the
// last one.
type travel struct {
	status int
	urls   []string
	end    answer // at the last; 200 if it is nil
	seen   []seen
}

// seen is what a host sees of a request.
type seen struct {
	Method, Host, Authorization, Key, Attempt string
}

func (tr *travel) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	tr.seen = append(tr.seen, seen{
		req.Method, req.URL.Host, req.Header.Get("Authorization"), req.Header.Get("Idempotency-Key"), req.Header.Get("Idempotency-Attempt"),
	})
	next := status(200)
	switch {
	case len(tr.seen) <= len(tr.urls):
		next = status(tr.status, "Location", tr.urls[len(tr.seen)-1])
	case tr.end != nil:
		next = tr.end
	}
	resp, err := next(req)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

func (tr *travel) keys() []string {
	var keys []string
	for _, s := range tr.seen {
		keys = append(keys, s.Key)
	}
	return keys
}

// A 307 or 308 is the same logical call at another address. http.Client copies the header of its
// caller's request, which does not have the key.
//
// The key is sent to the host of the call and to its subdomains. No release of net/http may send
// Authorization to a host that does not get the key.
func TestRedirect_KeepsTheKeyOnTheHost(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		first, chain string
		kept         int // requests with the key, the first one included
	}{
		{"http://shop.example/", "http://shop.example/new", 2},
		{"http://shop.example/", "/new", 2},
		{"http://shop.example/", "http://eu.shop.example/", 2},
		{"http://shop.example/", "http://a.eu.shop.example/ http://shop.example/", 3},
		{"http://shop.example/", "http://shop.example:8080/", 2},
		{"http://shop.example:1/", "http://eu.shop.example:2/", 2},
		{"http://shop.example/", "https://shop.example/", 2},
		{"https://shop.example/", "http://shop.example/", 2},
		{"http://shop.example/", "http://other.example/", 1},
		{"http://shop.example/", "http://notshop.example/", 1},
		{"http://shop.example/", "http://.shop.example/", 2},
		{"http://shop.example/", "http://SHOP.example/", 2},
		{"http://Shop.example/", "http://eu.sHOP.example/", 2},
		{"http://bücher.example/", "http://xn--bcher-kva.example/", 2},
		{"http://xn--bcher-kva.example/", "http://eu.BÜCHER.example:81/", 2},
		{"http://bücher.example/", "http://bucher.example/", 1},
		{"http://shop.example/", "http://shop.example.evil.example/", 1},
		{"http://eu.shop.example/", "http://shop.example/", 1},
		{"http://shop.example/", "http://other.example/ http://shop.example/", 1},
		{"http://shop.example/", "http://eu.shop.example/ http://other.example/ http://eu.shop.example/ /new", 2},
		{"http://127.0.0.1/", "http://127.0.0.1:81/ http://127.0.0.2/", 2},
		{"http://0.0.1/", "http://127.0.0.1/", 2},
		{"http://[::1]/", "http://[::1]:81/", 2},
		{"http://[::1]/", "http://[::2]/", 1},
		{"http://shop.example/", "http://[::1%25.shop.example]/", 1},
		{"http://1/", "http://[fe80::1%25eth.1]/", 1},
	} {
		for _, given := range []string{"automatic", "in the context", "in the header"} {
			t.Run(row.first+" "+row.chain+" "+given, func(t *testing.T) {
				t.Parallel()
				hosts, ctx := &travel{status: http.StatusTemporaryRedirect, urls: strings.Fields(row.chain)}, t.Context()
				if given == "in the context" {
					ctx = idemclient.WithKey(ctx, "order-1")
				}
				req := post(t, ctx, row.first)
				req.Header.Set("Authorization", "Bearer x")
				if given == "in the header" {
					req.Header.Set("Idempotency-Key", "order-1")
				}
				call(t, idemclient.NewClient(hosts).Do, req)
				if len(hosts.seen) != len(hosts.urls)+1 || hosts.seen[0].Key == "" {
					t.Fatalf("%+v were seen", hosts.seen)
				}
				for i, s := range hosts.seen {
					want := hosts.seen[0].Key
					if i >= row.kept {
						want = ""
					}
					if s.Key != want || s.Authorization != "" && s.Key == "" {
						t.Errorf("request %d, to %s: Authorization is %q, and the key %q", i+1, s.Host, s.Authorization, s.Key)
					}
				}
			})
		}
	}
}

func TestRedirect_KeyOnRedirectDecides(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		takes func(first, next *url.URL) bool
		chain string
		want  []string
	}{
		{"anywhere", func(_, _ *url.URL) bool { return true }, "http://other.example/ http://orders.example/", []string{`"k"`, `"k"`, `"k"`}},
		{"nowhere", func(_, _ *url.URL) bool { return false }, "/new /newer", []string{`"k"`, "", ""}},
		{"to one host", func(first, next *url.URL) bool {
			return first.Host == "orders.example" && next.Host == "new.example"
		}, "http://new.example/ http://new.example/2 http://other.example/ http://new.example/3", []string{`"k"`, `"k"`, `"k"`, "", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			hosts := &travel{status: 308, urls: strings.Fields(row.chain)}
			client := &http.Client{Transport: &idemclient.Transport{Base: hosts, KeyOnRedirect: row.takes}}
			call(t, client.Do, post(t, idemclient.WithKey(t.Context(), "k"), somewhere))
			if diff := cmp.Diff(row.want, hosts.keys()); diff != "" {
				t.Errorf("the keys that arrived (-want +got):\n%s", diff)
			}
		})
	}
}

// Without a key a POST is sent once, and idempotent methods are still retried. In both cases the
// error has the key.
func TestRedirect_ForeignHostGetsTheWriteOnceWithoutKey(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]struct {
		attempts int
		stop     idemclient.Stop
	}{
		"POST": {1, idemclient.StopUnsafe},
		"PUT":  {5, idemclient.StopAttempts},
	} {
		bubble(t, method, func(t *testing.T) {
			hosts, observed := &travel{status: 307, urls: []string{"http://other.example/"}, end: failure(io.EOF)}, &observer{}
			client := &http.Client{Transport: &idemclient.Transport{Base: hosts, Observe: observed.observe}}
			_, err := client.Do(request(t, idemclient.WithKey(t.Context(), secret), method, somewhere, strings.NewReader(order)))
			stopped, ok := errors.AsType[*idemclient.Error](err)
			if !ok || stopped.Stop != want.stop || stopped.Attempts != want.attempts || len(hosts.seen) != 1+want.attempts {
				t.Fatalf("error %v after %+v", err, hosts.seen)
			}
			for _, s := range hosts.seen[1:] {
				if diff := cmp.Diff(seen{Method: method, Host: "other.example"}, s); diff != "" {
					t.Errorf("the other host sees (-want +got):\n%s", diff)
				}
			}
			if key, _ := stopped.FullKey(); key != secret || stopped.Key == "" {
				t.Errorf("the error leads to the key %q, %q", key, stopped.Key)
			}
			if last := observed.last(t); last.Key != "" {
				t.Errorf("the last attempt is told to have sent %s", last.Key)
			}
		})
	}
}

// The order was placed. A caller that gets an error from the GET must not place the order again
// with another key.
func TestRedirect_ErrorOfTheGetHasTheKeyOfTheWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := &travel{status: 303, urls: []string{"/orders/1"}, end: failure(io.EOF)}
		_, err := idemclient.NewClient(hosts).Do(post(t, t.Context(), somewhere))
		stopped, ok := errors.AsType[*idemclient.Error](err)
		if !ok || stopped.Attempts != 5 {
			t.Fatal(err)
		}
		if key, _ := stopped.FullKey(); hosts.seen[0].Key != `"`+key+`"` || hosts.seen[5].Key != "" {
			t.Errorf("the error leads to the key %q, and %+v were seen", key, hosts.seen)
		}
	})
}

// http.Client copies the caller's header of the first request.
func TestRedirect_GetHasNoKeyFromTheHeader(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303} {
		hosts := &travel{status: code, urls: []string{"/orders/1", "/orders/1/"}}
		req := post(t, t.Context(), somewhere)
		req.Header.Set("Idempotency-Key", "order-1")
		req.Header.Set("Idempotency-Attempt", "7")
		req.Header.Set("Accept", "text/html")
		resp := call(t, idemclient.NewClient(hosts).Do, req)
		get := seen{Method: "GET", Host: "orders.example"}
		want := []seen{{Method: "POST", Host: "orders.example", Key: "order-1", Attempt: "7"}, get, get}
		if diff := cmp.Diff(want, hosts.seen); diff != "" || resp.Request.Header.Get("Accept") != "text/html" {
			t.Errorf("%d: what the host sees (-want +got):\n%s", code, diff)
		}
		if req.Header.Get("Idempotency-Key") == "" || req.Header.Get("Idempotency-Attempt") == "" {
			t.Errorf("%d: the caller's request was changed", code)
		}
	}
}

func TestRedirect_KeyFromCheckRedirectIsForItsHostOnly(t *testing.T) {
	t.Parallel()
	hosts := &travel{status: 307, urls: []string{"http://other.example/", "http://third.example/"}}
	client := idemclient.NewClient(hosts)
	client.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		if next.URL.Host == "other.example" {
			next.Header.Set("Idempotency-Key", "for-the-other")
		}
		return nil
	}
	req := post(t, t.Context(), somewhere)
	req.Header.Set("Idempotency-Key", "order-1")
	call(t, client.Do, req)
	if diff := cmp.Diff([]string{"order-1", "for-the-other", ""}, hosts.keys()); diff != "" {
		t.Errorf("the keys that arrived (-want +got):\n%s", diff)
	}
}

// forgetful is a RoundTripper above a Transport. It hides from http.Client which request a response
// answers.
type forgetful struct{ below http.RoundTripper }

func (f forgetful) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.below.RoundTrip(req)
	if resp != nil {
		resp.Request = nil
	}
	return resp, err
}

func TestRedirect_OfUnknownOriginHasNoKey(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{"automatic": {}, "in the header": {"Idempotency-Key": {"order-1"}}} {
		hosts := &travel{status: 307, urls: []string{"/new"}}
		req := post(t, t.Context(), somewhere)
		req.Header = header
		call(t, (&http.Client{Transport: forgetful{&idemclient.Transport{Base: hosts}}}).Do, req)
		if keys := hosts.keys(); len(keys) != 2 || keys[0] == "" || keys[1] != "" {
			t.Errorf("%s: the keys %q arrived", name, keys)
		}
	}
}

func TestRedirect_KeepsTheAgeOfTheCall(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{"in the context": nil, "in the header": {"Idempotency-Key": {"of-the-caller"}}} {
		bubble(t, name, func(t *testing.T) {
			server := &script{answers: []answer{
				func(r *http.Request) (*http.Response, error) {
					time.Sleep(20 * time.Second)
					return status(307, "Location", "/newer")(r)
				},
				status(503),
			}}
			for _, transport := range []*idemclient.Transport{
				{Base: server, MaxElapsed: 20 * time.Second},
				{Base: server, Retention: 20 * time.Second},
			} {
				server.received = nil
				req := post(t, t.Context(), somewhere)
				maps.Copy(req.Header, header)
				resp, err := (&http.Client{Transport: transport}).Do(req)
				if err == nil {
					finish(t, resp)
				} else if !errors.Is(err, idemclient.ErrKeyTooOld) {
					t.Fatal(err)
				}
				if sent := len(server.requests()); sent != 2 {
					t.Errorf("elapsed %v, retention %v: %d requests, want the redirected one and the next", transport.MaxElapsed, transport.Retention, sent)
				}
			}
		})
	}
}
