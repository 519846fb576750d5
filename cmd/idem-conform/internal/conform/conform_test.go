package conform_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/cmd/idem-conform/internal/conform"
)

func options(t *testing.T, profile, address string) conform.Options {
	t.Helper()
	p, ok := conform.Find(profile)
	u, err := url.Parse(address)
	if !ok || err != nil {
		t.Fatal(profile, err)
	}
	return conform.Options{
		URL: u, Profile: p, Request: conform.Standard(), Timeout: time.Minute,
		Credential: http.Header{"Authorization": {"Bearer alice-secret"}}, Other: http.Header{"Authorization": {"Bearer bob-secret"}},
		Failing: `{"declined":"{{unique}}"}`,
	}
}

// verdicts returns the verdict of each rule.
func verdicts(t *testing.T, o conform.Options) map[string]conform.Result {
	t.Helper()
	results, err := conform.Test(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]conform.Result{}
	for _, result := range results {
		found[result.Name] = result
	}
	return found
}

// A server breaks one rule at a time. Only that rule may be reported as broken.
func TestRules_AreFoundBrokenAlone(t *testing.T) {
	t.Parallel()
	also := map[string][]string{ // breaking the first rule also breaks these
		"repetition": {"after-a-cut", "at-once", "same-json", "replay-mark", "long-key"},
	}
	for _, profile := range conform.Names() {
		p, _ := conform.Find(profile)
		for _, rule := range append(slices.Clone(p.Rules), conform.Rule{}) {
			if rule.Name == "after-a-cut" && slices.Contains([]string{"stripe", "acp", "aip155"}, profile) {
				continue // it takes seconds, and the rule is the same in all profiles
			}
			t.Run(profile+" "+rule.Name, func(t *testing.T) {
				t.Parallel()
				o := options(t, profile, newServer(t, profile, rule.Name).URL)
				if rule.Name == "after-a-cut" {
					o.Timeout = 5 * time.Second // settled asks for this long, and all other requests have to be answered in it
				}
				for name, got := range verdicts(t, o) {
					want := conform.Kept
					if name == rule.Name {
						want = conform.Broken
					}
					if got.Verdict != want && !slices.Contains(also[rule.Name], name) {
						t.Errorf("%s: %s, want %s: %s %+v", name, got.Verdict, want, got.Why, got.Evidence)
					}
					if got.Verdict == conform.Broken && (got.Why == "" || len(got.Evidence) == 0 || got.Source == "") {
						t.Errorf("%s: %+v", name, got)
					}
				}
			})
		}
	}
}

func TestCodes_OfTheProfileAreCompared(t *testing.T) {
	t.Parallel()
	found := verdicts(t, options(t, "acp", newServer(t, "acp", "codes").URL))
	for _, rule := range []string{"no-key", "other-request"} {
		if found[rule].Verdict != conform.Broken {
			t.Errorf("%s: %+v", rule, found[rule])
		}
	}
}

// JSON has several spellings of a number and of a letter.
func TestSameJSON_FindsNumbersComparedAsText(t *testing.T) {
	t.Parallel()
	found := verdicts(t, options(t, "acp", newServer(t, "acp", "same-number").URL))
	if got := found["same-json"]; got.Verdict != conform.Broken || !strings.Contains(got.Why, "1.0 for 1") {
		t.Errorf("%+v", got)
	}
}

// If all answers are equal and replays are not marked, replays cannot be distinguished from
// executions.
func TestRules_NotTriedWithoutDistinctAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	t.Cleanup(server.Close)
	found := verdicts(t, options(t, "ietf", server.URL))
	for _, rule := range []string{"repetition", "at-once", "after-a-cut", "principal"} {
		if found[rule].Verdict != conform.NotTried || found[rule].Why == "" {
			t.Errorf("%s: %+v", rule, found[rule])
		}
	}
	if found["no-key"].Verdict != conform.Broken {
		t.Errorf("%+v", found["no-key"])
	}
}

// The number of requests is limited, and no request goes to another host.
func TestRequests_AreLimited(t *testing.T) {
	t.Parallel()
	var sent, now, most atomic.Int64
	var elsewhere atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); n > most.Load(); {
			most.Store(n)
		}
		defer now.Add(-1)
		if r.URL.Path != "/orders" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if sent.Add(1) > 3 { // later requests are in progress forever
			w.WriteHeader(http.StatusConflict)
			return
		}
		_, _ = fmt.Fprint(w, sent.Load())
	}))
	t.Cleanup(server.Close)
	o := options(t, "ietf", server.URL+"/orders")
	o.Timeout = time.Second
	verdicts(t, o)
	if sent.Load() > conform.MaxRequests || most.Load() > conform.MaxAtOnce {
		t.Errorf("%s: %d requests, %d at once", "ietf", sent.Load(), most.Load())
	}
	leads := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(leads.Close)
	for name, got := range verdicts(t, options(t, "ietf", leads.URL)) {
		if got.Verdict != conform.NotTried || !strings.Contains(got.Why, "redirect") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if elsewhere.Load() {
		t.Error("another host was asked")
	}

}

func TestCredentials_AreNotShown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		credential http.Header
		says       func(r *http.Request) string
		secret     string
	}{
		"two callers": {
			http.Header{"Authorization": {"Bearer alice-secret"}},
			func(r *http.Request) string { return fmt.Sprint(r.Header) }, "secret",
		},
		"across the end of what is shown": {
			http.Header{"Authorization": {"Bearer sk_live_0123456789"}},
			func(r *http.Request) string { return strings.Repeat(" ", 285) + r.Header.Get("Authorization") }, "sk_",
		},
		"one of the cookies": {
			http.Header{"Cookie": {"theme=dark; session=sk_live_0123456789"}},
			func(r *http.Request) string { c, _ := r.Cookie("session"); return c.Value }, "sk_",
		},
		"the password of Basic": {
			http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("alice:sk_live_0123456789"))}},
			func(r *http.Request) string { _, password, _ := r.BasicAuth(); return password }, "sk_",
		},
		"escaped as JSON": {
			http.Header{"Authorization": {"Bearer sk_live/01+23&45<67"}},
			func(r *http.Request) string {
				text, _ := json.Marshal(r.Header.Get("Authorization"))
				return strings.ReplaceAll(string(text), "/", `\/`)
			}, "sk_",
		},
		"escaped as a URL": {
			http.Header{"Authorization": {"Bearer sk_live/01+23&45<67é"}},
			func(r *http.Request) string { return "?token=" + url.QueryEscape(r.Header.Get("Authorization")[7:]) }, "sk_",
		},
		"escaped as HTML": {
			http.Header{"Authorization": {"Bearer sk_live/01+23&45<67"}},
			func(r *http.Request) string { return html.EscapeString(r.Header.Get("Authorization")) }, "sk_",
		},
		"in base64": {
			http.Header{"Authorization": {"Bearer sk_live/01+23&45<67"}},
			func(r *http.Request) string {
				var all []string
				for _, before := range []string{"", "x", "xy"} {
					all = append(all, base64.URLEncoding.EncodeToString([]byte(before+r.Header.Get("Authorization")+"&c")))
				}
				return strings.Join(all, " ")
			}, base64.StdEncoding.EncodeToString([]byte("sk_live/01+23&45<67"))[4:20],
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", r.Header.Get("Authorization"))
				_, _ = fmt.Fprint(w, test.says(r))
			}))
			t.Cleanup(server.Close)
			o := options(t, "ietf", server.URL)
			few := *o.Profile
			few.Rules = few.Rules[:1]
			o.Profile, o.Credential = &few, test.credential
			o.Other = http.Header{"Authorization": {"Bearer bob-secret"}}
			for rule, got := range verdicts(t, o) {
				if shown := fmt.Sprintf("%+v", got); strings.Contains(shown, test.secret) {
					t.Errorf("%s: %s", rule, shown)
				}
			}
		})
	}
}

// A misbehaving server does not end the run: each rule has a verdict.
func TestRun_SurvivesMisbehavingServers(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	for name, handler := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for chunk := []byte(strings.Repeat("x", 1<<16)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"cut":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, "%d\xff\x00", n.Add(1)) },
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not noticed
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(handler)
			server.Config.ErrorLog = nil
			server.Start()
			t.Cleanup(server.Close)
			o := options(t, "ietf", server.URL)
			o.Timeout = 200 * time.Millisecond
			if name == "endless" {
				o.Timeout = time.Minute
			}
			if found := verdicts(t, o); len(found) != len(o.Profile.Rules) {
				t.Errorf("%d verdicts", len(found))
			}
		})
	}
}

func TestRun_EndsAtInterruption(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not noticed
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	go func() {
		<-asked
		cancel(interrupted)
	}()
	if _, err := conform.Test(ctx, options(t, "ietf", server.URL)); !errors.Is(err, interrupted) {
		t.Error(err)
	}
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	r, err := conform.ReadRequest("PUT\nContent-Type: text/plain\r\nX-A: b\n\nan {{unique}}\n\nbody\n")
	if err != nil || r.Method != http.MethodPut || r.Header.Get("X-A") != "b" || r.Body != "an {{unique}}\n\nbody" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "GET\n\n", "POST /orders\n\n", "POST\nIdempotency-Key: k\n\n", "POST\nno field\n\n"} {
		if _, err := conform.ReadRequest(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
