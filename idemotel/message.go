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

// Attributes of the semantic conventions for messaging. The system is idem itself: an observer does
// not know the broker behind a publisher or a consumer.
const (
	messagingSystem        = attribute.Key("messaging.system")
	messagingOperation     = attribute.Key("messaging.operation.name")
	messagingConsumerGroup = attribute.Key("messaging.consumer.group.name")
)

// messages holds the instruments of the outbox and the inbox.
type messages struct {
	consumers                 names
	published, handled        metric.Int64Counter
	hindered, paused          metric.Int64Counter
	publishTimes, handleTimes metric.Float64Histogram
	sendTimes, processTimes   metric.Float64Histogram // the same times, by the semantic conventions

	counted   cache[messageLabels, []metric.AddOption]
	timed     cache[messageLabels, []metric.RecordOption]
	sent      cache[messageLabels, []metric.RecordOption]
	processed cache[messageLabels, []metric.RecordOption]
}

// messageLabels are the labels of messages. Messages of the outbox have no consumer.
type messageLabels struct {
	consumer, outcome string
	cause             idem.Cause
}

// newMessages creates the instruments of messages.
func newMessages(meter metric.Meter) (*messages, error) {
	m := &messages{}
	var errs [8]error
	m.published, errs[0] = meter.Int64Counter("idem.outbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a relay gave to the broker, by outcome."))
	m.publishTimes, errs[1] = meter.Float64Histogram("idem.outbox.publish.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls of the publisher."), metric.WithExplicitBucketBoundaries(durations...))
	m.handled, errs[2] = meter.Int64Counter("idem.inbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a consumer received, by outcome."))
	m.handleTimes, errs[3] = meter.Float64Histogram("idem.inbox.handle.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls of a consumer, for one or many messages."), metric.WithExplicitBucketBoundaries(durations...))
	m.hindered, errs[4] = meter.Int64Counter("idem.inbox.hindered", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that failed for a reason outside of the message, such as a lock, and do not count."))
	m.paused, errs[5] = meter.Int64Counter("idem.inbox.paused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a consumer put off because it had failed with many in a row."))
	m.sendTimes, errs[6] = meter.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of messaging operation initiated by a producer or consumer client."), metric.WithExplicitBucketBoundaries(durations...))
	m.processTimes, errs[7] = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of processing operation."), metric.WithExplicitBucketBoundaries(durations...))
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
	if data.Given == 0 { // the publisher was not called
		return
	}
	if m.publishTimes.Enabled(ctx) {
		m.publishTimes.Record(ctx, data.Duration.Seconds(), m.timed.get(messageLabels{outcome: outcome}, timedSet)...)
	}
	if m.sendTimes.Enabled(ctx) {
		m.sendTimes.Record(ctx, data.Duration.Seconds(), m.sent.get(messageLabels{outcome: outcome}, sentSet)...)
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
	if m.processTimes.Enabled(ctx) {
		m.processTimes.Record(ctx, data.Duration.Seconds(), m.processed.get(messageLabels{consumer: consumer, cause: data.Cause}, processedSet)...)
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

// sentSet returns the attributes of a call of a publisher. The conventions ask for error.type where
// an operation failed.
func sentSet(l messageLabels) []metric.RecordOption {
	attrs := []attribute.KeyValue{messagingSystem.String("idem"), messagingOperation.String("publish")}
	if l.outcome != published {
		attrs = append(attrs, causeKey.String(l.outcome))
	}
	return recordSet(attrs, idem.CauseNone)
}

func processedSet(l messageLabels) []metric.RecordOption {
	return recordSet([]attribute.KeyValue{
		messagingSystem.String("idem"), messagingOperation.String("process"), messagingConsumerGroup.String(l.consumer),
	}, l.cause)
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
