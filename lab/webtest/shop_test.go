package webtest

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// What the page of example/orders shows about an attempt.
const (
	placed   = "201 order 1"
	replayed = "201 replayed order 1"
)

// The test makes the picture of the README. It writes the picture to the file that
// IDEM_TEST_SCREENSHOT names.
func TestPage_Screenshot(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.doubleClick("#pay")
	p.wantAttempts(placed, replayed)
	p.click("#fresh")
	p.click("[name=lose]")
	p.click("#pay")
	p.waitFor(`document.querySelectorAll(".badge.lost").length === 1`)
	p.click("#retry")
	p.waitFor(`document.querySelectorAll(".badge.replayed").length === 2`)
	p.set("quantity", "3")
	p.click("#retry")
	p.waitFor(`document.querySelectorAll(".badge.refused").length === 1`)
	p.click("#fresh")
	p.set("quantity", "1")
	p.set("paid", "card")
	p.click("[name=bankLoses]")
	p.click("#pay")
	p.waitFor(`document.querySelectorAll("#purchases .badge.good").length === 7`)
	p.waitFor(`[...document.querySelectorAll(".sum")].map((sum) => sum.innerText).join() === "1 attempt → 1 order,3 attempts → 1 order,2 attempts → 1 order"`)
	p.waitFor(`document.querySelectorAll("#books .shipped").length === 3`)
	p.waitFor(`document.querySelectorAll("#books tr").length === 3 && document.querySelectorAll("#charges tr").length === 1`)
	p.wantInBooks(3, 3)
	p.do(chromedp.EmulateViewport(1280, 800))
	p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	p.screenshot()
}
