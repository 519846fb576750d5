package webtest

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/idem-go/idem/lab/optional"
)

// pageLimit is how long a test may use a tab.
const pageLimit = 3 * time.Minute

// newTab returns the context of a tab in a separate Chromium with a new profile. The profile is
// removed at the end of the test.
func newTab(t *testing.T) context.Context {
	t.Helper()
	path := optional.Program(t, "chromium")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), pageLimit) // lasts until the cleanup is over
	t.Cleanup(cancel)
	ctx, end := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // Chromium's sandbox does not work as root
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)...)
	t.Cleanup(end) // waits for the process
	ctx, kill := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // lets Chromium clean up
			kill()
		}
	})
	return ctx
}
