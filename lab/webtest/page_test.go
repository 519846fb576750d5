package webtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
)

// page is a page in a browser, and the database behind it.
type page struct {
	t    *testing.T
	tab  context.Context
	pool *pgxpool.Pool
	url  string
}

func openPage(t *testing.T) *page {
	t.Helper()
	tab, dsn := newTab(t), pgtest.EmptyDSN(t)
	p := &page{t: t, tab: tab, pool: pgtest.Open(t, dsn), url: startOrders(t, dsn)}
	p.do(failOnComplaints(t), chromedp.EmulateViewport(1280, 624), chromedp.Navigate(p.url))
	p.waitFor(`document.querySelector("#books-state").innerText === "live"`)
	return p
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.tab, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// click retries if the page replaces the element between the lookup and the click. Nothing was
// clicked then.
func (p *page) click(selector string) {
	p.t.Helper()
	err := chromedp.Do(p.tab, chromedp.Click(chromedp.CSS(selector)))
	for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
		err = chromedp.Do(p.tab, chromedp.Click(chromedp.CSS(selector)))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// doubleClick sends the events of a mouse: a first click, and a second one that is marked as a
// double click.
func (p *page) doubleClick(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)), chromedp.DoubleClick(chromedp.CSS(selector)))
}

func (p *page) set(name, value string) {
	p.t.Helper()
	p.do(chromedp.SetValue(chromedp.CSS("[name="+name+"]"), value))
}

func (p *page) waitFor(expression string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.tab, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingMutation())); err != nil {
		text, _ := chromedp.Run(p.tab, chromedp.Text(chromedp.CSS("body")))
		p.t.Fatalf("waiting for %s: %v; the page has:\n%s", expression, err, text)
	}
}

// wantAttempts waits until these attempts are on the page and have a result. Two concurrent
// attempts can be answered in any order.
func (p *page) wantAttempts(want ...string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelectorAll("#purchases li").length === %d && !document.querySelector(".waiting")`, len(want)))
	got, err := chromedp.Run(p.tab, chromedp.Evaluate[[]string](
		`[...document.querySelectorAll("#purchases .seen")].map((seen) => seen.innerText)`))
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// wantOneOrder fails the test unless the database has one order, and the page shows it with its
// record and this sum.
func (p *page) wantOneOrder(sum string) {
	p.t.Helper()
	p.waitFor(fmt.Sprintf(`document.querySelector(".sum").innerText === %q && document.querySelectorAll("#books tr.ours").length === 1`, sum))
	p.wantInBooks(1, 1)
}

func (p *page) wantInBooks(orders, records int) {
	p.t.Helper()
	var gotOrders, gotRecords int
	err := p.pool.QueryRow(p.tab, `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM idem.records)`).Scan(&gotOrders, &gotRecords)
	if err != nil || gotOrders != orders || gotRecords != records {
		p.t.Errorf("%d orders and %d records, %v; want %d and %d", gotOrders, gotRecords, err, orders, records)
	}
}

// screenshot writes a picture of the page to the file that IDEM_TEST_SCREENSHOT names.
func (p *page) screenshot() {
	p.t.Helper()
	name := os.Getenv("IDEM_TEST_SCREENSHOT")
	if name == "" {
		return
	}
	png, err := chromedp.Run(p.tab, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(name, png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
