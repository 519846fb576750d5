package webtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// axe returns the source of axe-core, which checks the accessibility of a page.
func axe(t *testing.T) string {
	t.Helper()
	name := os.Getenv("IDEM_AXE")
	if name == "" {
		t.Skip("needs axe-core (npm package axe-core): IDEM_AXE names its axe.min.js")
	}
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// check fails the test if axe-core finds a violation in the page, at any width and in either color
// scheme.
func (p *page) check(axe, name string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](axe))
	for _, scheme := range []string{"light", "dark"} {
		p.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia,
				emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return err
		}))
		for _, width := range []int64{390, 768, 1280} {
			p.do(chromedp.EmulateViewport(width, 800))
			found, err := chromedp.Run(p.tab, chromedp.Evaluate[[]string](`axe.run({resultTypes: ["violations"]}).then((found) =>
				found.violations.flatMap(({id, nodes}) => nodes.map(({target, failureSummary}) => id + " at " + target + ": " + failureSummary)))`, chromedp.EvalAwaitPromise))
			if err != nil || len(found) > 0 {
				p.t.Errorf("%s, %s, %d pixels: %v\n%s", name, scheme, width, err, strings.Join(found, "\n"))
			}
		}
	}
}

// letMessagesFail creates messages that the inbox will retry, and that the outbox holds.
func letMessagesFail(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	o, err := inbox.Handle(t.Context(), pool, "billing", inbox.Message{Source: "orders", ID: "evt_9"}, func(pgx.Tx) error { return errors.New("no answer") })
	if o.State != inbox.Retry {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, sql := range []string{
		"UPDATE idem.outbox SET held = true, attempts = 3, next_at = now() + interval '1 h', class = 'timeout', reason = 'no answer' WHERE aggregatetype = 'orders'",
		"INSERT INTO idem.relay_topics (relay, topics, generation, since) VALUES ('invoices', ARRAY['invoices'], 1, now())",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUI_AxeFindsNoViolation(t *testing.T) {
	t.Parallel()
	source := axe(t)
	open := func(t *testing.T) (p *page, token string) {
		p, token = openUI(t, "--write")
		blockKey(t, p.pool)
		letMessagesFail(t, p.pool)
		return p, token
	}
	checkFirst := func(p *page, list string) {
		p.open(list)
		address, err := chromedp.Run(p.tab, chromedp.Evaluate[string](`document.querySelector("tbody a").href`))
		if err != nil {
			p.t.Fatal(err)
		}
		p.do(chromedp.Navigate(address))
		p.check(source, "the first of "+list)
	}
	t.Run("lists", func(t *testing.T) {
		p, token := open(t)
		p.login(token)
		for _, path := range []string{"", "operations", "operations?state=running", "messages", "messages?state=delayed", "dead", "flight", "acts", "doctor", "terms", "none"} {
			p.open(path)
			p.check(source, path)
		}
	})
	t.Run("details", func(t *testing.T) {
		p, token := open(t)
		p.open("login")
		p.check(source, "login")
		checkFirst(p, "operations") // offers the login
		p.login(token)
		for _, list := range []string{"operations", "operations?state=running", "operations?state=completed", "dead"} {
			checkFirst(p, list)
		}
	})
}

func TestOrders_AxeFindsNoViolation(t *testing.T) {
	t.Parallel()
	source := axe(t)
	p := openPage(t)
	p.check(source, "at the start")
	p.doubleClick("#pay")
	p.wantAttempts(placed, replayed)
	p.set("quantity", "3")
	p.click("#retry")
	p.waitFor(`document.querySelectorAll(".badge.refused").length === 1`)
	p.click("#fresh")
	p.set("paid", "card")
	p.click("[name=bankLoses]")
	p.click("#pay")
	p.waitFor(`document.querySelectorAll("#charges tr").length === 1`)
	p.check(source, "at the end")
}
