package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/ui"
	"github.com/idem-go/idem/lab/pgtest"
)

// pages has the addresses of all pages.
var pages = []string{"", "operations", "operations?state=running", "operations?state=completed", "operations?state=undone", "operations?name=none", "operations/" + parkedID,
	"operations/" + runningID, "operations/" + doneID, "messages", "messages?state=held", "messages?state=delayed", "dead", "dead?side=inbox", "flight", "acts", "acts?person=none"}

const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)> &amp; {{.}} javascript:alert(3)` + "\u202egnihtemos\u2066 \x1b[2J\n" + `ﷺ שלום`

func TestPage_EscapesTextAndHidesValues(t *testing.T) {
	t.Parallel()
	d := newHarness(t, withToken)
	const key, secret = "key-of-a-customer-0123456789", "the secret of a customer"
	stranger := hostile + strings.Repeat("long", 300)
	d.keep(stranger, key, secret)
	d.login()
	for _, path := range append(pages, letter(stranger), "messages?"+formOf("topic", stranger).Encode(), "operations?"+formOf("name", stranger).Encode(),
		"dead?"+formOf("consumer", stranger, "class", stranger).Encode(), "acts?"+formOf("person", stranger).Encode()) {
		got := d.get(path).want(t, 200)
		// A field of the filter repeats the parameter of the request.
		got.text = regexp.MustCompile(` value="[^"]*"`).ReplaceAllString(got.text, "")
		for _, never := range []string{"<script>alert", "<img", "\u202e", "\u2066", "\x1b", "ZgotmplZ", key, secret, `"javascript:`, "#ZgotmplZ"} {
			if strings.Contains(got.text, never) {
				t.Errorf("%.60s contains %q", path, never)
			}
		}
		for _, script := range regexp.MustCompile(`(?i)<script[^>]*>|\son\w+=|\sstyle=`).FindAllString(got.text, -1) {
			if !regexp.MustCompile(`^<script src="[./]*static/refresh.js" defer>$`).MatchString(script) && !strings.Contains(hostile, strings.TrimSpace(script)) {
				t.Errorf("%.60s has %s", path, script)
			}
		}
	}
	d.get("operations/"+parkedID).want(t, 200, "because of &lt;script&gt;alert(1)", `\u202e`, "key-…(28)", "not shown here", "begun", "the bank says &lt;script&gt;alert(1)", "call_in_doubt")
	d.get("dead").want(t, 200, "&lt;script&gt;alert(1)", "key-…(28)")
	d.get("messages").want(t, 200, "does not run", "held", "key-…(28)", "lag", "no process")
}

func TestPage_DescribesAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	for path, sentence := range map[string]string{
		"": "no operation is parked", "operations": "No operation is parked.", "operations?state=running": "No operation is running.", "operations?state=failed": "No operation is in state failed.",
		"messages": "No message waits to be published.", "dead": "There are no dead letters.", "flight": "No transaction holds a key.", "acts": "No person has changed anything.",
	} {
		d.get(path).want(t, 200, sentence, "Read-only")
	}
}

func TestPage_ShowsSessionsThatHoldKeys(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	config := d.pool.Config().Copy()
	config.ConnConfig.RuntimeParams["application_name"] = "the <shop>"
	shop := pgtest.OpenConfig(t, config)
	go func() {
		_, err := idem.Do(context.Background(), shop, "s", "under way", idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
			close(began)
			<-done
			return idem.Response{}, nil
		})
		ended <- err
	}()
	<-began
	d.get("flight").want(t, 200, "the &lt;shop&gt;", "Its client: no statement runs.", "idle in transaction", `class="number">1</td>`)
	d.get("").want(t, 200, "in 1 transaction,")
	close(done)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestLists_ContinueAfterTheLastRow(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	d.exec(`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, epoch, state, undoing, step, seq, kind, since, wake_at, tries, attempts, ended_at)
		SELECT gen_random_uuid(), 's', n::text, '', CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, 1, now(), '', 1, state, false, 'x', 1, '', now() - (n % 10) * interval '1 min', now() - (n % 10) * interval '1 min', 0, 0,
			CASE WHEN state = 'completed' THEN now() END
		FROM generate_series(1, 120) n, unnest(ARRAY['parked', 'running', 'completed']) state`)
	d.exec(`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
		SELECT 'inbox', 'c', 's', n::text, '', '', '', '', 1, now(), now() FROM generate_series(1, 120) n`)
	d.exec(`INSERT INTO idem.outbox (created_at, id, held, aggregatetype, aggregateid, type, payload) SELECT now(), gen_random_uuid(), false, 't', 'k', '', '' FROM generate_series(1, 120)`)
	for first, want := range map[string]int{"operations": 120, "operations?state=running": 120, "operations?state=completed": 120, "operations?name=odd": 60, "dead": 120, "dead?class=": 120, "messages": 120} {
		seen, path := map[string]bool{}, first
		for pages := 0; path != "" && pages < 5; pages++ {
			got := d.get(path).want(t, 200)
			got.text = got.text[strings.Index(got.text, "<h1>"):]
			if _, messages, is := strings.Cut(got.text, `id="outbox"`); is {
				got.text = messages
			}
			once := map[string]bool{}
			for _, found := range regexp.MustCompile(`operations/[0-9a-f-]{36}|letter\?[^"]*id=\d+|<td[^>]*><code>[0-9a-f-]{36}`).FindAllString(got.text, -1) {
				if seen[found] && !once[found] {
					t.Errorf("%s shows %s again", path, found)
				}
				seen[found], once[found] = true, true
			}
			next := regexp.MustCompile(`rel="next" href="\./([^"#]*)`).FindStringSubmatch(got.text)
			if path = ""; next != nil {
				path = strings.ReplaceAll(next[1], "&amp;", "&")
			}
		}
		if len(seen) != want {
			t.Errorf("%s: %d are shown, want %d", first, len(seen), want)
		}
	}
}

func TestPage_RefusesUnknownPathsWithAReason(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	for path, code := range map[string]int{
		"nothing": 404, "operations/none": 404, "operations/": 404, "operations/" + parkedID: 404, "operations/" + parkedID + "/more": 404, "letter": 404, "letter?id=x": 404, "static/none": 404, "static/../ui.go": 404,
		"operations?state=none": 400, "operations?after=none": 400, "messages?state=none": 400, "messages?after=none": 400, "dead?after=none": 400, "dead?after=e30": 200, "operations?after=e30": 400,
		"operations?name=%00%ff": 200, "?said=none": 200, "login": 200, "operations?name=" + strings.Repeat("x", 30_000): 414, "a//b": 404, "%2e%2e/": 404,
	} {
		d.get(path).want(t, code)
	}
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"} {
		d.send(method, "", nil, nil).want(t, 405)
	}
	if got := d.send(http.MethodHead, "", nil, nil).want(t, 200); got.text != "" {
		t.Error(got.text)
	}
}

func TestGuard_SetsSecurityHeadersOnEveryResponse(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	for _, path := range []string{"", "nothing", "static/style.css", "static/refresh.js", "static/icon.svg", "login"} {
		got := d.get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; ", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if value := got.Get(name); !strings.HasPrefix(value, want) || strings.Contains(value, "unsafe") {
				t.Errorf("%s: %s: %q, want %q", path, name, value, want)
			}
		}
		if !strings.Contains(got.Get("Content-Security-Policy"), "frame-ancestors 'none'") || got.Get("Content-Type") == "" || got.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, got.Header)
		}
	}
}

func TestGuard_AnswersToConfiguredHosts(t *testing.T) {
	t.Parallel()
	d := newHarness(t, func(c *ui.Config) { c.Hosts = []string{"localhost", "127.0.0.1", "::1", "idem.example"} })
	for host, code := range map[string]int{
		"localhost": 200, "LocalHost:7466": 200, "localhost.:80": 200, "127.0.0.1:1": 200, "[::1]:7466": 200, "::1": 200, "idem.example": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:7466": 421, "127.0.0.2": 421, "evil.example:127.0.0.1": 421,
	} {
		got := d.send(http.MethodGet, "", nil, func(r *http.Request) { r.Host = host })
		if got.code != code && got.code != 400 { // net/http rejects an invalid host with 400
			t.Errorf("%s: %d, want %d", host, got.code, code)
		}
	}
}

func TestPage_WorksBelowAnyPrefix(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	page, err := ui.New(ui.Config{Pool: pool, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/idem/", http.StripPrefix("/admin/idem", page))
	mux.Handle("/bare", http.StripPrefix("/bare", page))
	mux.Handle("/bare/", http.StripPrefix("/bare", page))
	d := harnessOf(t, pool, mux, "/admin/idem/")
	d.keep("shop", "a key of some length", "secret")
	d.post("login", "token", token, "person", "ann").want(t, 200, "You may act as")
	link := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	checked := map[string]bool{}
	for _, path := range append(pages, letter("shop")) {
		// The browser sends the cookie to every path of the page.
		got := d.get(path).want(t, 200, "You may act as")
		for _, found := range link.FindAllStringSubmatch(got.text, -1) {
			to, err := got.url.Parse(strings.ReplaceAll(found[1], "&amp;", "&"))
			if err != nil || !strings.HasPrefix(to.Path, "/admin/idem/") {
				t.Fatalf("%s links to %s", path, found[1])
			}
			if to.Fragment = ""; !checked[to.String()] && !strings.Contains(found[0], "action") {
				checked[to.String()] = true
				if d.get(strings.TrimPrefix(to.RequestURI(), "/admin/idem/")).code != 200 {
					t.Errorf("%s has a dead link to %s", path, found[1])
				}
			}
		}
	}
	got := d.post("retry", "id", parkedID, "reason", "INC-7")
	if got.want(t, 200, "The operation is retried").url.Path != "/admin/idem/operations/"+parkedID {
		t.Error(got.url)
	}
	d.root = d.server.URL
	if got := d.get("/bare"); got.want(t, 200, "Overview").url.Path != "/bare/" {
		t.Error(got.url)
	}
}

func TestNew_RejectsContradictions(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	person := func(*http.Request) string { return "ann" }
	for name, config := range map[string]ui.Config{
		"no pool": {}, "a token that can be guessed": {Pool: pool, Token: token[:31]}, "token and person": {Pool: pool, Token: token, Person: person},
		"private without a token": {Pool: pool, Private: true}, "a negative timeout": {Pool: pool, Timeout: -1},
	} {
		if _, err := ui.New(config); err == nil {
			t.Error(name)
		}
	}
}

// Viewers of the same page share one reading of the database.
func TestReads_AreSharedByViewers(t *testing.T) {
	t.Parallel()
	var transactions atomic.Int64
	d := newHarness(t, nil)
	pool := pgtest.Open(t, d.pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.MaxConns = 4
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { transactions.Add(1); return true, nil }
	})
	page, err := ui.New(ui.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	other := harnessOf(t, pool, page, "/")
	lock, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE idem.audit"); err != nil {
		t.Fatal(err)
	}
	var viewers sync.WaitGroup
	var refused atomic.Int64
	for n := range 30 {
		viewers.Go(func() {
			if got := other.get("acts?ignored=" + fmt.Sprint(n)); got.code != 200 {
				refused.Add(1)
			}
		})
	}
	viewers.Wait() // until the lock timeout
	_ = lock.Rollback(t.Context())
	if n := transactions.Load(); n > 10 {
		t.Errorf("30 viewers caused %d transactions", n)
	}
	if refused.Load() == 0 {
		t.Error("the reading did not wait: the test shows nothing")
	}
	d.get("acts").want(t, 200)
}

func TestReads_EndInTime(t *testing.T) {
	t.Parallel()
	d := newHarness(t, func(c *ui.Config) { c.Timeout = 500 * time.Millisecond })
	lock, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), "LOCK TABLE idem.audit"); err != nil {
		t.Fatal(err)
	}
	d.get("acts").want(t, 504, "longer than this page allows")
	patient := harnessAt(t, d.pool, func(c *ui.Config) { c.Timeout = time.Minute })
	patient.get("acts").want(t, 409, "holds a lock")
	patient.get("dead").want(t, 200)
}
