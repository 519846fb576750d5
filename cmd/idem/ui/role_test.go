package ui_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
)

// role creates a role with a login, and returns its name and a pool of its sessions.
func (d *harness) role() (name string, pool *pgxpool.Pool) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), "SELECT 'look_' || replace(gen_random_uuid()::text, '-', '')").Scan(&name); err != nil {
		d.t.Fatal(err)
	}
	d.exec("CREATE ROLE " + name + " LOGIN PASSWORD 'secret'")
	d.t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + name, "DROP ROLE " + name} {
			if _, err := d.pool.Exec(context.WithoutCancel(d.t.Context()), sql); err != nil {
				d.t.Error(err)
			}
		}
	})
	address, err := url.Parse(d.pool.Config().ConnString())
	if err != nil {
		d.t.Fatal(err)
	}
	address.User = url.UserPassword(name, "secret")
	return name, pgtest.Open(d.t, address.String())
}

// onCall returns the statements of the documentation that create the role for people on call.
func onCall(t *testing.T, role string) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "CREATE ROLE idem_look;\n")
	block, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/operate.md creates no role idem_look")
	}
	for line := range strings.Lines(block) {
		statements = append(statements, strings.ReplaceAll(line, "idem_look", role))
	}
	return statements
}

func TestPage_OnCallRoleReadsAndCannotChange(t *testing.T) {
	t.Parallel()
	owner := newActingHarness(t, nil)
	name, pool := owner.role()
	owner.exec("CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)")
	for _, sql := range onCall(t, name) {
		owner.exec(sql)
	}
	d := harnessAt(t, pool, withToken)
	d.login()
	for _, path := range append(pages, letter("shop")) {
		if got := d.get(path).want(t, 200, name); strings.Contains(got.text, "unknown") {
			t.Errorf("%s: something is unknown:\n%s", path, got.text)
		}
	}
	for _, got := range d.attempts(nil) {
		got.want(t, 403, "Nothing was changed", "INSERT on idem.audit")
	}
	owner.unchanged()
}

// The test executes the GRANT statements that the page proposes, until the page can be read.
func TestProblem_NamesTheMissingPrivileges(t *testing.T) {
	t.Parallel()
	owner := newActingHarness(t, nil)
	name, pool := owner.role()
	d := harnessAt(t, pool, nil)
	for _, path := range pages {
		for try := 0; ; try++ {
			got := d.get(path)
			if got.code == http.StatusOK {
				break
			}
			_, grant, found := strings.Cut(got.want(t, 403, "lacks a privilege", "TO "+name).text, "<p>GRANT ")
			grant, _, _ = strings.Cut(grant, "</p>")
			if !found || try > 3 {
				t.Fatalf("%s: %s", path, got.text)
			}
			for _, sql := range strings.Split("GRANT "+grant, "; ") {
				owner.exec(sql)
			}
		}
	}
}

func TestPage_SaysHowToCreateTheSchema(t *testing.T) {
	t.Parallel()
	d := harnessAt(t, pgtest.Open(t, pgtest.EmptyDSN(t)), nil)
	for _, path := range pages {
		d.get(path).want(t, 503, "idem migrate up")
	}
}

func TestPage_WorksBehindAPooler(t *testing.T) {
	t.Parallel()
	owner := newActingHarness(t, nil)
	behind := pgtest.PgBouncer(t, owner.pool.Config().ConnString())
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		d := harnessAt(t, pgtest.Open(t, behind, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }), withToken)
		for _, path := range append(pages, letter("shop")) {
			d.get(path).want(t, 200)
		}
	}
}

func TestPage_ReportsAnUnavailableDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, "postgres://ann:password@127.0.0.1:1/shop")
	got := harnessAt(t, pool, nil).get("operations").want(t, 502, "Cannot connect to 127.0.0.1:1", "connection refused")
	if strings.Contains(got.text, "password") {
		t.Error("the password is shown")
	}
}
