package ui_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/ui"
	"github.com/idem-go/idem/lab/pgtest"
)

const token = "a token of the tests, long enough"

// harness is a browser session on the page of a database.
type harness struct {
	t      *testing.T
	pool   *pgxpool.Pool
	server *httptest.Server
	client *http.Client
	root   string // the address of the overview
}

// newHarness serves the page of a new database.
func newHarness(t *testing.T, change func(*ui.Config)) *harness {
	t.Helper()
	return harnessAt(t, pgtest.New(t), change)
}

func harnessAt(t *testing.T, pool *pgxpool.Pool, change func(*ui.Config)) *harness {
	t.Helper()
	config := ui.Config{Pool: pool, Timeout: time.Minute} // enough on a busy machine
	if change != nil {
		change(&config)
	}
	page, err := ui.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return harnessOf(t, pool, page, "/")
}

func harnessOf(t *testing.T, pool *pgxpool.Pool, handler http.Handler, root string) *harness {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &harness{t, pool, server, &http.Client{Jar: jar}, server.URL + root}
}

func withToken(c *ui.Config) { c.Token = token }

func (d *harness) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

// answer is a response of the page.
type answer struct {
	code int
	http.Header
	text string
	url  *url.URL
}

func (d *harness) send(method, path string, form url.Values, change func(*http.Request)) answer {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.root+path, strings.NewReader(form.Encode()))
	if err != nil {
		d.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	got, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header, string(text), got.Request.URL}
}

func (d *harness) get(path string) answer {
	d.t.Helper()
	return d.send(http.MethodGet, path, nil, nil)
}

func (d *harness) post(path string, pairs ...string) answer {
	d.t.Helper()
	return d.send(http.MethodPost, path, formOf(pairs...), nil)
}

func formOf(pairs ...string) url.Values {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// login logs in as ann.
func (d *harness) login() {
	d.t.Helper()
	d.post("login", "token", token, "person", "ann").want(d.t, 200, "You may act as")
}

// want checks the status, and that the page contains each of parts.
func (a answer) want(t *testing.T, code int, parts ...string) answer {
	t.Helper()
	bad := a.code != code
	if bad {
		t.Errorf("%s: status %d, want %d", a.url, a.code, code)
	}
	for _, part := range parts {
		if !strings.Contains(a.text, part) {
			bad = true
			t.Errorf("%s: %q is missing", a.url, part)
		}
	}
	if bad {
		t.Log(a.text)
	}
	return a
}

// field returns the value of a hidden field of a form.
func (a answer) field(t *testing.T, form, name string) string {
	t.Helper()
	_, rest, _ := strings.Cut(a.text, `id="`+form+`"`)
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(rest)
	if found == nil {
		t.Fatalf("%s has no field %s in the form %s:\n%s", a.url, name, form, a.text)
	}
	return found[1]
}

// Ids of the operations that keep inserts.
const (
	parkedID  = "0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2b11"
	runningID = "0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2b12"
	doneID    = "0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2b13"
)

// keep inserts a row of every kind. It puts the untrusted text stranger into each column that
// accepts text, and secret into each column that the page must not show.
func (d *harness) keep(stranger, key, secret string) {
	d.t.Helper()
	const begun = "now() - interval '2 days 3 hours'"
	for _, o := range []struct{ id, state, kind, reason string }{
		{parkedID, "parked", "call", "because of " + stranger}, {runningID, "running", "", ""}, {doneID, "completed", "", ""},
	} {
		d.exec(`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, epoch, state, undoing, step, seq, kind, since, wake_at, tries, attempts, reason, reason_step, reason_text, error_step, error_attempt, error_text, error_at, ended_at)
			VALUES ($1, $2, $3, '', $2, 86400000000, `+begun+`, convert_to($4, 'UTF8'), 1, $5, false, CASE $5 WHEN 'completed' THEN '' ELSE $2 END, CASE $5 WHEN 'completed' THEN 0 ELSE 2 END,
				$6, `+begun+`, `+begun+`, 0, 1, CASE $5 WHEN 'parked' THEN 'call_in_doubt' END, CASE $5 WHEN 'parked' THEN $2 END, nullif($7, ''), $2, 2, convert_to('the bank says ' || $2, 'UTF8'), now(), CASE $5 WHEN 'completed' THEN now() END)`, o.id, stranger, key, secret, o.state, o.kind, o.reason)
		d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ($1, $2 || $3, '', $3::text::uuid, now(), now() + '1 day', 'running')`, stranger, key, o.id)
		d.exec(`INSERT INTO idem.steps (operation_id, seq, kind, name, outcome, value, recorded_at) VALUES ($1::text::uuid, 1, 'tx', $2, 'done', convert_to($3, 'UTF8'), `+begun+`)`, o.id, stranger, secret)
		d.exec(`INSERT INTO idem.signals (operation_id, name, value, sent_at, taken) VALUES ($1::text::uuid, $2, convert_to($3, 'UTF8'), now(), false)`, o.id, stranger, secret)
	}
	for _, held := range []bool{false, true} {
		d.exec(`INSERT INTO idem.outbox (created_at, id, held, attempts, next_at, aggregatetype, aggregateid, type, payload, headers, class, reason)
			VALUES (`+begun+`, gen_random_uuid(), $1, CASE WHEN $1 THEN 3 END, CASE WHEN $1 THEN now() + '1 h' END, $2, $3, $2, convert_to($4, 'UTF8'), jsonb_build_object('h', $4::text), CASE WHEN $1 THEN $2 END, CASE WHEN $1 THEN $2 END)`,
			held, stranger, key, secret)
	}
	d.exec(`INSERT INTO idem.delayed (created_at, id, not_before, aggregatetype, aggregateid, type, payload) VALUES (`+begun+`, gen_random_uuid(), now() + '1 day', $1, $2, $1, convert_to($3, 'UTF8'))`,
		stranger, key, secret)
	d.exec(`INSERT INTO idem.relay_topics (relay, topics, generation, since) VALUES ($1, ARRAY[$1], 1, now())`, stranger)
	d.exec(`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, retry_at, key) VALUES ($1, $1, $1, '', 'failing', `+begun+`, 'infinity', 3, now() + '1 h', $2)`, stranger, key)
	for _, side := range []string{"outbox", "inbox"} {
		d.exec(`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, payload, headers, class, reason, attempts, created_at, died_at)
			VALUES ($1, CASE $1 WHEN 'inbox' THEN $2 ELSE '' END, $2, CASE $1 WHEN 'inbox' THEN $2 ELSE '0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2c11' END, $3, $2, convert_to($4, 'UTF8'), jsonb_build_object('h', $4::text), $2, $2, 10, `+begun+`, `+begun+`)`,
			side, stranger, key, secret)
	}
	d.exec(`INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, operation_id, step, scope, key, side, consumer, source, message_id) VALUES
		(now(), gen_random_uuid(), $1, $1, $1, $1, $1, NULL, $1, $1, '', 'inbox', $1, $1, $1), (now(), gen_random_uuid(), $1, $1, $1, $1, $1, $2::text::uuid, $1, $1, 'abcd…(20)', '', '', '', '')`, stranger, parkedID)
	d.exec("ANALYZE")
}

// letter returns the address of the dead letter of the inbox.
func letter(name string) string {
	return "letter?" + formOf("side", "inbox", "consumer", name, "source", name, "id", name).Encode()
}
