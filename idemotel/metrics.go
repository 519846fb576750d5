package idemotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
)

// Keys of labels and attributes.
const (
	nameKey       = attribute.Key("idem.name")
	kindKey       = attribute.Key("idem.kind")
	outcomeKey    = attribute.Key("idem.outcome")
	causeKey      = attribute.Key("error.type")
	resolutionKey = attribute.Key("idem.resolution")
)

// Bucket boundaries of the histograms, in seconds.
var (
	durations = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	ages      = []float64{0.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}
)

// metrics holds the instruments of calls, and a cache of label sets for each.
type metrics struct {
	duration, wait, age metric.Float64Histogram
	retries, unknown    metric.Int64Counter
	unreadable          metric.Int64Counter

	ended    cache[endedLabels, []metric.RecordOption]
	waited   cache[endedLabels, []metric.RecordOption]
	replayed cache[string, []metric.RecordOption]
	retried  cache[endedLabels, []metric.AddOption]
	resolved cache[resolvedLabels, []metric.AddOption]
}

// endedLabels are the labels of a call that has ended.
type endedLabels struct {
	name, kind string
	outcome    idem.Outcome
	cause      idem.Cause
}

type resolvedLabels struct{ name, resolution string }

// newMetrics creates the instruments of calls.
func newMetrics(meter metric.Meter) (*metrics, error) {
	m := &metrics{}
	var errs [6]error
	m.duration, errs[0] = meter.Float64Histogram("idem.call.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls."), metric.WithExplicitBucketBoundaries(durations...))
	m.wait, errs[1] = meter.Float64Histogram("idem.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Wait of calls that waited for another call with their key."),
		metric.WithExplicitBucketBoundaries(durations...))
	m.age, errs[2] = meter.Float64Histogram("idem.replay.age", metric.WithUnit("s"),
		metric.WithDescription("Time from the first use of a key to a replay."), metric.WithExplicitBucketBoundaries(ages...))
	m.retries, errs[3] = meter.Int64Counter("idem.retries", metric.WithUnit("{retry}"),
		metric.WithDescription("Transactions that were run again."))
	m.unknown, errs[4] = meter.Int64Counter("idem.commit.unknown", metric.WithUnit("{commit}"),
		metric.WithDescription("COMMITs that were not acknowledged, by their outcome."))
	m.unreadable, errs[5] = meter.Int64Counter("idem.replay.unreadable", metric.WithUnit("{replay}"),
		metric.WithDescription("Replays that were refused because the recorded response cannot be read."))
	return m, errors.Join(errs[:]...)
}

// end records the metrics of a call that has ended.
func (m *metrics) end(ctx context.Context, name, kind string, data *idem.TraceEndData) {
	labels := endedLabels{name, kind, data.Outcome, data.Cause}
	// Enabled avoids the lookup of labels if the metric is not read.
	if m.duration.Enabled(ctx) {
		m.duration.Record(ctx, data.Duration.Seconds(), m.ended.get(labels, endedSet)...)
	}
	if data.Cause == idem.CauseUnreadable && m.unreadable.Enabled(ctx) {
		m.unreadable.Add(ctx, 1, unreadableSet(name)...)
	}
	if data.Waited > 0 && m.wait.Enabled(ctx) {
		labels := endedLabels{name: name, outcome: data.Outcome}
		m.wait.Record(ctx, data.Waited.Seconds(), m.waited.get(labels, waitedSet)...)
	}
	if data.Outcome == idem.OutcomeReplayed && m.age.Enabled(ctx) {
		m.age.Record(ctx, data.Age.Seconds(), m.replayed.get(name, replayedSet)...)
	}
}

func (m *metrics) retry(ctx context.Context, name string, cause idem.Cause) {
	if m.retries.Enabled(ctx) {
		m.retries.Add(ctx, 1, m.retried.get(endedLabels{name: name, cause: cause}, retriedSet)...)
	}
}

// Values of idem.resolution: the outcome of a COMMIT that was not acknowledged.
const (
	committed  = "committed"
	rolledBack = "rolled_back"
	unresolved = "unresolved"
)

func (m *metrics) resolve(ctx context.Context, name, resolution string) {
	if m.unknown.Enabled(ctx) {
		m.unknown.Add(ctx, 1, m.resolved.get(resolvedLabels{name, resolution}, resolvedSet)...)
	}
}

// declare exports zeros for the counters of rare events. Without them a counter would first appear
// with the value 1, and a rate over it would miss the first event.
func (m *metrics) declare(name string) {
	m.unreadable.Add(context.Background(), 0, unreadableSet(name)...)
	for _, resolution := range []string{committed, rolledBack, unresolved} {
		m.unknown.Add(context.Background(), 0, resolvedSet(resolvedLabels{name, resolution})...)
	}
}

func endedSet(l endedLabels) []metric.RecordOption {
	return recordSet(append(named(l.name), kindKey.String(l.kind), outcomeKey.String(string(l.outcome))), l.cause)
}

func waitedSet(l endedLabels) []metric.RecordOption {
	return recordSet(append(named(l.name), outcomeKey.String(string(l.outcome))), idem.CauseNone)
}

func replayedSet(name string) []metric.RecordOption { return recordSet(named(name), idem.CauseNone) }

func retriedSet(l endedLabels) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(caused(named(l.name), l.cause)...))}
}

func resolvedSet(l resolvedLabels) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(append(named(l.name), resolutionKey.String(l.resolution))...))}
}

func unreadableSet(name string) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(named(name)...))}
}

func recordSet(attrs []attribute.KeyValue, cause idem.Cause) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(caused(attrs, cause)...))}
}

// named returns the label for the name of a call, or no label for a call without a name.
func named(name string) []attribute.KeyValue {
	if name == "" {
		return nil
	}
	return []attribute.KeyValue{nameKey.String(name)}
}

func caused(attrs []attribute.KeyValue, cause idem.Cause) []attribute.KeyValue {
	if cause == idem.CauseNone {
		return attrs
	}
	return append(attrs, causeKey.String(string(cause)))
}
