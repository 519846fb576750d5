package idemotel

import (
	"context"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

var (
	_ outbox.RelayObserver  = (*Observer)(nil)
	_ inbox.HandlerObserver = (*Observer)(nil)
)

// Values of idem.outcome for messages of the outbox.
const (
	published = "published"
	failed    = "failed"
	away      = "away"
)

// TracePublished records a call of a relay's publisher. It implements outbox.RelayObserver: set the
// Observer in outbox.RelayConfig. If the call returned an error, the messages that were neither
// published nor failed have the idem.outcome "away": they are still in the outbox, and the relay
// publishes them again.
func (o *Observer) TracePublished(ctx context.Context, data outbox.TracePublishedData) {
	if o == nil {
		return
	}
	m, left := o.metrics, 0
	if data.Err != nil {
		left = data.Given - data.Published - data.Failed
	}
	m.published.add(ctx, data.Published, labels{outcome: published})
	m.published.add(ctx, data.Failed, labels{outcome: failed})
	m.published.add(ctx, left, labels{outcome: away})
	if data.Given == 0 { // the publisher was not called
		return
	}
	// The semantic conventions require the label error.type for an operation that failed.
	outcome, cause := published, idem.CauseNone
	if data.Err != nil || data.Failed > 0 {
		outcome, cause = failed, failed
	}
	m.publishTimes.record(ctx, data.Duration, labels{outcome: outcome})
	m.sendTimes.record(ctx, data.Duration, labels{messaging: "publish", cause: cause})
}

// TraceHandled records a call of package inbox. It implements inbox.HandlerObserver: pass the
// Observer to inbox.WithObserver. The first hundred consumers have label values of their own. Later
// consumers share the value "_OTHER".
func (o *Observer) TraceHandled(ctx context.Context, data inbox.TraceHandledData) {
	if o == nil {
		return
	}
	m, consumer := o.metrics, o.consumers.tell(data.Consumer)
	m.handled.add(ctx, data.Done, labels{consumer: consumer, outcome: string(inbox.Done)})
	m.handled.add(ctx, data.Duplicates, labels{consumer: consumer, outcome: string(inbox.Duplicate)})
	m.handled.add(ctx, data.Retried, labels{consumer: consumer, outcome: string(inbox.Retry)})
	m.handled.add(ctx, data.Died, labels{consumer: consumer, outcome: string(inbox.Dead)})
	m.hindered.add(ctx, data.Hindered, labels{consumer: consumer})
	m.paused.add(ctx, data.Paused, labels{consumer: consumer})
	m.handleTimes.record(ctx, data.Duration, labels{consumer: consumer, cause: data.Cause})
	m.processTimes.record(ctx, data.Duration, labels{messaging: "process", group: consumer, cause: data.Cause})
}
