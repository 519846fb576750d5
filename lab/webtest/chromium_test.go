package webtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// pageLimit is how long a test may look at a page.
const pageLimit = 3 * time.Minute

// newTab returns the context of a tab in a Chromium of its own, with a fresh profile that is removed afterwards. Where there is no Chromium the test is
// skipped, and with IDEM_TEST_REQUIRE=1 it fails instead.
func newTab(t *testing.T) context.Context {
	t.Helper()
	path := findChromium(t)
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

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no Chromium: install it (Debian's package is called chromium)"
	if os.Getenv("IDEM_TEST_REQUIRE") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}
