package webtest

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// What the page of example/orders shows about an attempt.
const (
	placed     = "201 order 1"
	replayed   = "201 replayed order 1"
	lost       = "no answer network error: was it ordered?"
	otherOrder = "422 This key belongs to a different request"
	inProgress = "409 The first request with this key is still running"

	soldOut      = "422 There is not enough in stock"
	soldOutAgain = "422 replayed There is not enough in stock"
)

func TestDoubleClickIsOneOrder(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.doubleClick("#pay")
	p.wantAttempts(placed, replayed)
	p.wantOneOrder("2 attempts → 1 order")
}

func TestSlowOrderDoubleClickedIsOneOrder(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.set("slow", "2s")
	p.click("#twice")
	p.waitFor(`document.querySelector("#books tr.in-progress")`)
	p.wantReplay(inProgress)
}

func TestDuplicateOfAnOrderThatTakesTooLongIsToldToComeBack(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.set("slow", "7s")
	p.click("#twice")
	p.wantAttempts(placed, inProgress)
	p.set("slow", "")
	p.click("#retry")
	p.wantAttempts(placed, inProgress, replayed)
	p.wantOneOrder("3 attempts → 1 order")
}

func TestLostAnswerIsReplayedToTheRetry(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.click("[name=lose]")
	p.click("#pay")
	p.wantAttempts(lost)
	p.wantOneOrder("1 attempt → 1 order") // the browser does not know that yet
	p.click("#retry")
	p.wantAttempts(lost, replayed)
	p.wantOneOrder("2 attempts → 1 order")
}

func TestChangedAmountIsRefused(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.click("#pay")
	p.wantAttempts(placed)
	p.set("quantity", "3")
	p.click("#retry")
	p.wantAttempts(placed, otherOrder)
	p.wantOneOrder("2 attempts → 1 order")
}

func TestSoldOutIsANoThatIsReplayed(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.set("sku", "samovar")
	p.click("#pay")
	p.wantAttempts(soldOut)
	p.click("#retry")
	p.wantAttempts(soldOut, soldOutAgain)
	p.wantInBooks(0, 1)
}

func TestPageFitsANarrowScreen(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	const width = 360
	p.do(chromedp.EmulateViewport(width, 740))
	p.doubleClick("#pay")
	p.wantAttempts(placed, replayed)
	p.wantOneOrder("2 attempts → 1 order")
	for _, selector := range []string{"html", "#shop", ".books"} {
		got, err := chromedp.Run(p.tab, chromedp.JavascriptAttribute[int](chromedp.CSS(selector), "scrollWidth"))
		if err != nil || got > width {
			t.Errorf("%s is %d pixels wide, %v; want at most %d", selector, got, err, width)
		}
	}
}

// TestPageTellsTheWholeStory produces the picture in the README. If IDEM_TEST_SCREENSHOT names a
// file, the test writes the picture there.
func TestPageTellsTheWholeStory(t *testing.T) {
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
