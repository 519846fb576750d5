package webtest

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/idem-go/idem/lab/optional"
)

// pageLimit is how long a test may look at a page.
const pageLimit = 3 * time.Minute

// newTab returns the context of a tab in a Chromium of its own, with a fresh profile that is removed afterwards.
func newTab(t *testing.T) context.Context {
	t.Helper()
	path := optional.Program(t, "chromium")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), pageLimit) // until the clean-up is over
	t.Cleanup(cancel)
	ctx, end := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // Chromium has none for root
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)...)
	t.Cleanup(end) // waits for the process
	ctx, kill := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // so that Chromium cleans up after itself
			kill()
		}
	})
	return ctx
}
