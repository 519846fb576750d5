package webtest

import (
	"context"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// failOnComplaints makes the test fail if the browser reports a problem in the tab from now on: an
// uncaught exception, or a violation of the content security policy. HTTP error statuses do not
// count.
func failOnComplaints(t *testing.T) chromedp.Action[chromedp.Void] {
	var listeners sync.WaitGroup
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		ctx, stop := context.WithCancel(ctx)
		t.Cleanup(func() { stop(); listeners.Wait() })
		listen(ctx, &listeners, tab, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) {
			t.Errorf("the page threw: %s, %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		})
		listen(ctx, &listeners, tab, log.EntryAdded, func(e log.EventEntryAdded) {
			if e.Entry.Source != log.EntrySourceNetwork {
				t.Errorf("the browser complains: %s", e.Entry.Text)
			}
		})
		_, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		return err
	})
}

func listen[E any](ctx context.Context, listeners *sync.WaitGroup, tab *chromedp.Target, event cdp.Event[E], heard func(E)) {
	events := cdp.Events(ctx, tab, event)
	listeners.Go(func() {
		for e, err := range events {
			if err != nil {
				return
			}
			heard(e)
		}
	})
}
