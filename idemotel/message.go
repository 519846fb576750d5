package idemotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

const consumerKey = attribute.Key("idem.consumer")

// messages holds the instruments of the outbox and the inbox.
type messages struct {
	consumers                 names
	published, handled        metric.Int64Counter
	hindered, paused          metric.Int64Counter
	publishTimes, handleTimes metric.Float64Histogram

	counted cache[messageLabels, []metric.AddOption]
	timed   cache[messageLabels, []metric.RecordOption]
}

// messageLabels are the labels of messages. Messages of the outbox have no consumer.
type messageLabels struct {
	consumer, outcome string
	cause             idem.Cause
}

// newMessages creates the instruments of messages.
func newMessages(meter metric.Meter) (*messages, error) {
	m := &messages{}
	var errs [6]error
	m.published, errs[0] = meter.Int64Counter("idem.outbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a relay has given to the broker, by the outcome of them."))
	m.publishTimes, errs[1] = meter.Float64Histogram("idem.outbox.publish.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the calls of a relay's publisher take."), metric.WithExplicitBucketBoundaries(durations...))
	m.handled, errs[2] = meter.Int64Counter("idem.inbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a consumer was given, by the outcome of them."))
	m.handleTimes, errs[3] = meter.Float64Histogram("idem.inbox.handle.duration", metric.WithUnit("s"),
		metric.WithDescription("How long a consumer's calls take, of one message or of many."), metric.WithExplicitBucketBoundaries(durations...))
	m.hindered, errs[4] = meter.Int64Counter("idem.inbox.hindered", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts of a consumer that something else has hindered, a lock for example, and that do not count."))
	m.paused, errs[5] = meter.Int64Counter("idem.inbox.paused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a consumer was given while it paused, because it had failed with many in a row."))
	return m, errors.Join(errs[:]...)
}

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

// TracePublished records a call of a relay's publisher. It implements outbox.RelayObserver: set it
// in outbox.RelayConfig. If the call returned an error, messages that were neither published nor
// failed are counted as away: the relay publishes them again.
func (o *Observer) TracePublished(ctx context.Context, data outbox.TracePublishedData) {
	if o == nil {
		return
	}
	outcome := published
	if data.Err != nil || data.Failed > 0 {
		outcome = failed
	}
	m := o.messages
	m.count(ctx, m.published, messageLabels{outcome: published}, data.Published)
	m.count(ctx, m.published, messageLabels{outcome: failed}, data.Failed)
	left := 0
	if data.Err != nil {
		left = data.Given - data.Published - data.Failed
	}
	m.count(ctx, m.published, messageLabels{outcome: away}, left)
	if data.Given > 0 && m.publishTimes.Enabled(ctx) { // without messages the publisher was not called
		m.publishTimes.Record(ctx, data.Duration.Seconds(), m.timed.get(messageLabels{outcome: outcome}, timedSet)...)
	}
}

// TraceHandled records a call of package inbox. It implements inbox.HandlerObserver: pass it to
// inbox.WithObserver. The first hundred consumers are kept apart.
func (o *Observer) TraceHandled(ctx context.Context, data inbox.TraceHandledData) {
	if o == nil {
		return
	}
	m, consumer := o.messages, o.messages.consumers.tell(data.Consumer)
	for _, of := range []struct {
		state inbox.State
		n     int
	}{{inbox.Done, data.Done}, {inbox.Duplicate, data.Duplicates}, {inbox.Retry, data.Retried}, {inbox.Dead, data.Died}} {
		m.count(ctx, m.handled, messageLabels{consumer: consumer, outcome: string(of.state)}, of.n)
	}
	m.count(ctx, m.hindered, messageLabels{consumer: consumer}, data.Hindered)
	m.count(ctx, m.paused, messageLabels{consumer: consumer}, data.Paused)
	if m.handleTimes.Enabled(ctx) {
		m.handleTimes.Record(ctx, data.Duration.Seconds(), m.timed.get(messageLabels{consumer: consumer, cause: data.Cause}, timedSet)...)
	}
}

// count adds n to a counter, even if n is 0. A counter that first appears with the value 1 would
// hide the first event from a rate.
func (m *messages) count(ctx context.Context, counter metric.Int64Counter, labels messageLabels, n int) {
	if counter.Enabled(ctx) {
		counter.Add(ctx, int64(n), m.counted.get(labels, countedSet)...)
	}
}

func countedSet(l messageLabels) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(messageAttributes(l)...))}
}

func timedSet(l messageLabels) []metric.RecordOption { return recordSet(messageAttributes(l), l.cause) }

func messageAttributes(l messageLabels) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if l.consumer != "" {
		attrs = append(attrs, consumerKey.String(l.consumer))
	}
	if l.outcome != "" {
		attrs = append(attrs, outcomeKey.String(l.outcome))
	}
	return attrs
}
