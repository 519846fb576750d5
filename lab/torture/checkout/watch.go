package checkout

import (
	"context"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
)

// watch is an observer that logs which calls wait for their key.
type watch struct{ *shop }

func (w watch) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w watch) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	if name, ok := ctx.Value(callName{}).(history.Op); ok && data.Event == idem.EventWaiting {
		w.note(journal.Event{Kind: journal.KindWait, Op: name})
	}
}

func (w watch) TraceEnd(context.Context, idem.TraceEndData) {}
