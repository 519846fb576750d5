package idemotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
)

// Keys of labels and attributes.
const (
	nameKey       = attribute.Key("idem.name")
	kindKey       = attribute.Key("idem.kind")
	stepKey       = attribute.Key("idem.step")
	stepKindKey   = attribute.Key("idem.step.kind")
	consumerKey   = attribute.Key("idem.consumer")
	outcomeKey    = attribute.Key("idem.outcome")
	resolutionKey = attribute.Key("idem.resolution")
	causeKey      = attribute.Key("error.type")

	// Attributes of the semantic conventions for messaging. The value of messaging.system is
	// "idem", because an observer does not know the broker behind a publisher or a consumer.
	messagingSystem        = attribute.Key("messaging.system")
	messagingOperation     = attribute.Key("messaging.operation.name")
	messagingConsumerGroup = attribute.Key("messaging.consumer.group.name")
)

// labels are the labels of a measurement and the attributes of a span. An empty field is left out.
type labels struct {
	name, kind     string // the name and the kind of a call
	step, stepKind string
	consumer       string
	messaging      string // the value of messaging.operation.name
	group          string // the value of messaging.consumer.group.name
	outcome        string
	resolution     string
	cause          idem.Cause
}

func (l labels) attributes() (attrs []attribute.KeyValue) {
	system := ""
	if l.messaging != "" {
		system = "idem"
	}
	for _, attr := range []attribute.KeyValue{
		nameKey.String(l.name), kindKey.String(l.kind), stepKey.String(l.step), stepKindKey.String(l.stepKind),
		consumerKey.String(l.consumer), outcomeKey.String(l.outcome), resolutionKey.String(l.resolution),
		causeKey.String(string(l.cause)), messagingSystem.String(system), messagingOperation.String(l.messaging),
		messagingConsumerGroup.String(l.group),
	} {
		if attr.Value.AsString() != "" {
			attrs = append(attrs, attr)
		}
	}
	return attrs
}

// counter is a counter with a cache of label sets.
type counter struct {
	metric.Int64Counter
	sets cache[labels, []metric.AddOption]
}

// add adds n, even if n is 0, so that the counter exists before the first event. The rate of a
// counter that first appears with the value 1 would not include the first event.
func (c *counter) add(ctx context.Context, n int, l labels) {
	if c.Enabled(ctx) { // saves the lookup of labels if nothing collects the metric
		c.Add(ctx, int64(n), c.sets.get(l, func(l labels) []metric.AddOption {
			return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(l.attributes()...))}
		})...)
	}
}

// histogram is a histogram of times with a cache of label sets.
type histogram struct {
	metric.Float64Histogram
	sets cache[labels, []metric.RecordOption]
}

func (h *histogram) record(ctx context.Context, d time.Duration, l labels) {
	if h.Enabled(ctx) {
		h.Record(ctx, d.Seconds(), h.sets.get(l, func(l labels) []metric.RecordOption {
			return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(l.attributes()...))}
		})...)
	}
}

// Bucket boundaries of the histograms, in seconds.
var (
	durations = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	ages      = []float64{0.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}
)

// metrics has the instruments of an Observer. The package documentation lists the instruments, and
// a test compares names and units.
type metrics struct {
	duration, wait, age          *histogram
	retries, unknown, unreadable *counter
	stepDuration                 *histogram

	published, handled, hindered, paused *counter
	publishTimes, handleTimes            *histogram
	sendTimes, processTimes              *histogram // the same times, under the names of the semantic conventions
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	count := func(name, unit, text string) *counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return &counter{Int64Counter: c}
	}
	measure := func(name, unit, text string, buckets []float64) *histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return &histogram{Float64Histogram: h}
	}
	m := &metrics{
		duration:     measure("idem.call.duration", "s", "Duration of calls.", durations),
		wait:         measure("idem.wait.duration", "s", "Wait of calls that waited for another call with their key.", durations),
		age:          measure("idem.replay.age", "s", "Time from the first use of a key to a replay.", ages),
		retries:      count("idem.retries", "{retry}", "Transactions that were run again."),
		unknown:      count("idem.commit.unknown", "{commit}", "COMMITs that were not acknowledged, by their outcome."),
		unreadable:   count("idem.replay.unreadable", "{replay}", "Replays that were refused because the recorded response cannot be read."),
		stepDuration: measure("idem.step.duration", "s", "Duration of attempts at steps of operations.", durations),
		published:    count("idem.outbox.messages", "{message}", "Messages that a relay gave to the broker, by outcome."),
		publishTimes: measure("idem.outbox.publish.duration", "s", "Duration of calls of the publisher.", durations),
		handled:      count("idem.inbox.messages", "{message}", "Messages that a consumer received, by outcome."),
		handleTimes:  measure("idem.inbox.handle.duration", "s", "Duration of calls of a consumer, for one or many messages.", durations),
		hindered: count("idem.inbox.hindered", "{attempt}",
			"Attempts that failed for a reason outside of the message, such as a lock, and do not count."),
		paused: count("idem.inbox.paused", "{message}", "Messages that a consumer put off because it had failed with many in a row."),
		sendTimes: measure("messaging.client.operation.duration", "s",
			"Duration of messaging operation initiated by a producer or consumer client.", durations),
		processTimes: measure("messaging.process.duration", "s", "Duration of processing operation.", durations),
	}
	return m, errors.Join(errs...)
}

func (m *metrics) end(ctx context.Context, name, kind string, data *idem.TraceEndData) {
	m.duration.record(ctx, data.Duration, labels{name: name, kind: kind, outcome: string(data.Outcome), cause: data.Cause})
	if data.Cause == idem.CauseUnreadable {
		m.unreadable.add(ctx, 1, labels{name: name})
	}
	if data.Waited > 0 {
		m.wait.record(ctx, data.Waited, labels{name: name, outcome: string(data.Outcome)})
	}
	if data.Outcome == idem.OutcomeReplayed {
		m.age.record(ctx, data.Age, labels{name: name})
	}
}

// Values of idem.resolution: the outcome of a COMMIT that was not acknowledged.
const (
	committed  = "committed"
	rolledBack = "rolled_back"
	unresolved = "unresolved"
)

// declare exports the value 0 for the counters of rare events, so that the counters exist before
// the first event.
func (m *metrics) declare(name string) {
	m.unreadable.add(context.Background(), 0, labels{name: name})
	for _, resolution := range []string{committed, rolledBack, unresolved} {
		m.unknown.add(context.Background(), 0, labels{name: name, resolution: resolution})
	}
}
