package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/cmd/idem/ui"
	"github.com/idem-go/idem/seal"
)

// acts returns the rows of idem.audit, without those that the harness inserted.
func (d *harness) acts() (all []string) {
	d.t.Helper()
	rows, err := d.pool.Query(d.t.Context(), "SELECT act, outcome, person, reason FROM idem.audit WHERE person <> 'shop' ORDER BY at, id")
	if err != nil {
		d.t.Fatal(err)
	}
	for rows.Next() {
		values := make([]string, 4)
		if err := rows.Scan(&values[0], &values[1], &values[2], &values[3]); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, strings.Join(values, ", "))
	}
	return all
}

func (d *harness) wantActs(want ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.acts()); diff != "" {
		d.t.Errorf("acts (-want +got):\n%s", diff)
	}
}

func (d *harness) count(sql string) (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), sql).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

const (
	inboxLetter  = "SELECT count(*) FROM idem.dead_letters WHERE side = 'inbox' AND redrive_at IS NULL"
	outboxLetter = "SELECT count(*) FROM idem.dead_letters WHERE side = 'outbox'"
	parked       = "SELECT count(*) FROM idem.operations WHERE state = 'parked'"
)

func newActingHarness(t *testing.T, change func(*ui.Config)) *harness {
	t.Helper()
	d := newHarness(t, change)
	d.keep("shop", "a key of some length", "secret")
	return d
}

func TestChange_WithTokenAndReason(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.get("operations/"+parkedID).want(t, 200, "Log in</a> with the token to act")
	d.login()
	d.get("operations/"+parkedID).want(t, 200, "<h3>Retry</h3>", `action="./../resolve"`, "Nothing is undone.", "parks with call_in_doubt")

	d.post("retry", "id", parkedID, "reason", "INC-1: the bank is back").want(t, 200, "The operation is retried", "State</dt><dd class=\"\">running")
	d.post("retry", "id", parkedID, "reason", "INC-1").want(t, 409, "has changed since it was read")
	d.post("cancel", "id", runningID, "reason", "INC-2").want(t, 200, "The operation is canceled", ", canceled")
	d.post("cancel", "id", doneID, "reason", "INC-2").want(t, 409)

	d.get("letter?side=inbox&id=shop").want(t, 404) // a part of the name is not enough
	one := d.get(letter("shop")).want(t, 200, "Redrive: let the consumer handle it again")
	d.post("redrive", "letter", one.field(t, "redrive", "letter"), "reason", "INC-3").want(t, 200, "The dead letter is redriven", "Redriven")
	d.post("drop", "letter", one.field(t, "drop", "letter"), "died", one.field(t, "drop", "died"), "reason", "INC-4").want(t, 200, "The dead letter is deleted")
	d.post("drop", "letter", one.field(t, "drop", "letter"), "died", one.field(t, "drop", "died"), "reason", "INC-4").want(t, 409, "Nothing was deleted")

	one = d.get("letter?side=outbox&source=shop&id=0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2c11").want(t, 200)
	d.post("redrive", "letter", one.field(t, "redrive", "letter"), "reason", "INC-5 "+hostile).want(t, 200, "The dead letter is redriven")
	d.post("redrive", "letter", one.field(t, "redrive", "letter"), "reason", "INC-5").want(t, 404, "no such dead letter")
	d.wantActs("retry, running, ann, INC-1: the bank is back", "cancel, to be undone, ann, INC-2", "redrive, to be tried again, ann, INC-3", "drop, deleted, ann, INC-4",
		"redrive, to be tried again, ann, INC-5 "+strings.TrimSpace(hostile))
	if n := d.count("SELECT count(*) FROM idem.outbox WHERE id = '0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2c11'"); n != 1 {
		t.Errorf("%d messages in the outbox", n)
	}
	d.get("acts").want(t, 200, "INC-5 &lt;script&gt;", "ann")
}

// cookie returns the cookie of the login.
func (d *harness) cookie() *http.Cookie {
	d.t.Helper()
	at, err := url.Parse(d.root)
	if err != nil {
		d.t.Fatal(err)
	}
	cookies := d.client.Jar.Cookies(at)
	if len(cookies) != 1 {
		d.t.Fatalf("%d cookies", len(cookies))
	}
	return cookies[0]
}

// unchanged fails the test if a row that keep inserted has changed.
func (d *harness) unchanged() {
	d.t.Helper()
	d.wantActs()
	for _, sql := range []string{inboxLetter, outboxLetter, parked} {
		if n := d.count(sql); n != 1 {
			d.t.Errorf("%s: %d", sql, n)
		}
	}
}

// attempts sends a form for every change, and returns the responses.
func (d *harness) attempts(change func(*http.Request)) (all []answer) {
	letter := "eyJTaWRlIjoiaW5ib3giLCJDb25zdW1lciI6InNob3AiLCJTb3VyY2UiOiJzaG9wIiwiSUQiOiJzaG9wIn0"
	for act, form := range map[string][]string{
		"retry": {"id", parkedID}, "cancel": {"id", parkedID}, "resolve": {"id", parkedID, "epoch", "1", "seq", "2", "finding", "happened", "value", "null"}, "redrive": {"letter", letter}, "drop": {"letter", letter, "died", "1"},
	} {
		all = append(all, d.send(http.MethodPost, act, formOf(append(form, "reason", "because")...), change))
	}
	return all
}

func TestReadOnly_RefusesChanges(t *testing.T) {
	t.Parallel()
	owner := newActingHarness(t, nil)
	for name, change := range map[string]func(*ui.Config){
		"no person may act":  nil,
		"a token to read":    func(c *ui.Config) { c.Token, c.ReadOnly = token, true },
		"a login that reads": func(c *ui.Config) { c.Person, c.ReadOnly = func(*http.Request) string { return "ann" }, true },
	} {
		d := harnessAt(t, owner.pool, change)
		if name == "a token to read" {
			d.post("login", "token", token, "person", "ann").want(t, 200, "Read-only")
		}
		for _, got := range d.attempts(nil) {
			got.want(t, 403, "This page is read-only.")
		}
		d.get("operations/"+parkedID).want(t, 200, "This page is read-only")
		d.unchanged()
	}
}

func TestLogin_ChangesNeedTheToken(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	for _, wrong := range []string{"", token + "x"} {
		d.post("login", "token", wrong, "person", "ann").want(t, 403, "That is not the token")
	}
	d.post("login", "token", token, "person", "  ").want(t, 400, "needs a name")
	other := harnessAt(t, d.pool, withToken)
	other.login()
	name := other.cookie().Name
	for _, cookie := range []string{"", "x", "x.y", token, "eyJQZXJzb24iOiJhbm4iLCJVbnRpbCI6OTk5OTk5OTk5OX0.", "eyJQZXJzb24iOiJhbm4iLCJVbnRpbCI6OTk5OTk5OTk5OX0.AAAA"} {
		for _, got := range d.attempts(func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: cookie}) }) {
			got.want(t, 401, "does not know who you are")
		}
	}
	for _, got := range d.attempts(func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }) {
		got.want(t, 401)
	}
	d.unchanged()
	d.login()
	d.post("logout").want(t, 200, "Read-only")
	for _, got := range d.attempts(nil) {
		got.want(t, 401)
	}
	d.unchanged()
}

// A page with another token does not accept the cookie.
func TestTicket_IsInvalidUnderAnotherToken(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.login()
	ticket := d.cookie()
	if strings.Contains(ticket.Value, token) {
		t.Fatal(ticket)
	}
	other := harnessAt(t, d.pool, func(c *ui.Config) { c.Token = token + " of another page" })
	other.post("login", "token", token+" of another page", "person", "bob").want(t, 200)
	name := other.cookie().Name
	if name == ticket.Name {
		t.Error("two pages on two ports of one host overwrite each other's tickets")
	}
	other.client.Jar = nil
	for _, got := range other.attempts(func(r *http.Request) { r.AddCookie(ticket); r.AddCookie(&http.Cookie{Name: name, Value: ticket.Value}) }) {
		got.want(t, 401)
	}
	d.unchanged()
}

func TestGuard_RefusesFormsOfOtherSites(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.login()
	for name, change := range map[string]func(http.Header){
		"neither header":                func(h http.Header) { h.Del("Sec-Fetch-Site") },
		"cross-site":                    func(h http.Header) { h.Set("Sec-Fetch-Site", "cross-site") },
		"another port of the same host": func(h http.Header) { h.Set("Sec-Fetch-Site", "same-site") },
		"from the address bar":          func(h http.Header) { h.Set("Sec-Fetch-Site", "none") },
		"twice":                         func(h http.Header) { h.Add("Sec-Fetch-Site", "cross-site") },
		"an origin of its own":          func(h http.Header) { h.Del("Sec-Fetch-Site"); h.Set("Origin", "https://evil.example") },
		"no origin":                     func(h http.Header) { h.Del("Sec-Fetch-Site"); h.Set("Origin", "null") },
		"a port of its own":             func(h http.Header) { h.Del("Sec-Fetch-Site"); h.Set("Origin", "http://127.0.0.1:1") },
	} {
		for _, got := range d.attempts(func(r *http.Request) { change(r.Header) }) {
			if got.code != 403 {
				t.Errorf("%s: %d", name, got.code)
			}
		}
	}
	d.unchanged()
	// An old browser, or one on an unencrypted connection, sends Origin only.
	d.send(http.MethodPost, "retry", formOf("id", parkedID, "reason", "INC"), func(r *http.Request) {
		r.Header.Del("Sec-Fetch-Site")
		r.Header.Set("Origin", d.server.URL)
	}).want(t, 200, "The operation is retried")
}

func TestChange_NeedsAReason(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.login()
	for _, reason := range []string{"", " \t\n"} {
		d.post("retry", "id", parkedID, "reason", reason).want(t, 400, "needs a reason")
	}
	d.get("retry?id="+parkedID+"&reason=because").want(t, 404)
	// A reason in the address is refused, because logs contain addresses.
	d.send(http.MethodPost, "retry?id="+parkedID+"&reason=because", nil, nil).want(t, 400)
	d.post("retry", "id", parkedID, "reason", strings.Repeat("x", 100_000)).want(t, 400)
	d.post("retry", "id", "none", "reason", "because").want(t, 404)
	d.post("drop", "letter", "none", "reason", "because").want(t, 404)
	d.post("drop", "letter", "e30", "died", "none", "reason", "because").want(t, 404)
	d.post("redrive", "letter", "e30", "reason", "because").want(t, 404)
	d.post("operations/retry", "id", parkedID, "reason", "because").want(t, 404)
	d.unchanged()
}

func TestPrivate_ShowsNothingWithoutTheToken(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, func(c *ui.Config) { c.Token, c.Private = token, true })
	for _, path := range append(pages, letter("shop"), "login") {
		if got := d.get(path).want(t, 401, `name="token"`, "This page is private"); strings.Contains(got.text, "shop") {
			t.Errorf("%s shows something", path)
		}
	}
	for _, got := range d.attempts(nil) {
		got.want(t, 401)
	}
	d.login()
	d.get("operations").want(t, 200, "shop")
}

// The program has its own login, and Person names who makes a change.
func TestPerson_OfTheProgramMakesChanges(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, func(c *ui.Config) { c.Person = func(r *http.Request) string { return r.Header.Get("X-Tester") } })
	for _, got := range d.attempts(nil) {
		got.want(t, 401)
	}
	d.post("login", "token", "", "person", "ann").want(t, 404)
	d.unchanged()
	d.send(http.MethodPost, "retry", formOf("id", parkedID, "reason", "INC-9"), func(r *http.Request) { r.Header.Set("X-Tester", "bob@example.com") }).want(t, 200)
	d.wantActs("retry, running, bob@example.com, INC-9")
}

func TestRedrive_OfASealedDeadLetterNeedsKeys(t *testing.T) {
	t.Parallel()
	d := newActingHarness(t, withToken)
	d.login()
	d.exec("UPDATE idem.dead_letters SET sealed_by = 'k1' WHERE side = 'outbox'")
	one := d.get("letter?side=outbox&source=shop&id=0193c1a0-5a9e-4bbd-8e01-3f1f5f3b2c11").want(t, 200, "Sealed with")
	d.post("redrive", "letter", one.field(t, "redrive", "letter"), "reason", "INC").want(t, 409, "--seal-keys", "Nothing was changed")
	sealed := harnessAt(t, d.pool, func(c *ui.Config) {
		c.Token, c.Sealer = token, seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": make([]byte, seal.SecretSize)}})
	})
	sealed.login()
	// The payload of the row is not really sealed, so it does not open.
	got := sealed.post("redrive", "letter", one.field(t, "redrive", "letter"), "reason", "INC")
	if got.code < 400 || strings.Contains(got.text, "secret") {
		t.Errorf("%d %s", got.code, got.text)
	}
	d.unchanged()
}
