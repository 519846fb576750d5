package idemotel_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
)

// seen collects what an SDK receives.
type seen struct {
	t       *testing.T
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
}

func newSeen(t *testing.T) *seen {
	s := &seen{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	return s
}

func (s *seen) options() []idemotel.Option {
	return []idemotel.Option{idemotel.WithMeterProvider(s.meters), idemotel.WithTracerProvider(s.tracers)}
}

func (s *seen) observer() *idemotel.Observer {
	s.t.Helper()
	o, err := idemotel.New(s.options()...)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *seen) collect() metricdata.ResourceMetrics {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// values returns the value of each time series by name and labels. A histogram has the number of
// its measurements.
func (s *seen) values() map[string]float64 {
	s.t.Helper()
	values := map[string]float64{}
	for _, scope := range s.collect().ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[series(m.Name, p.Attributes)] = float64(p.Count)
				}
			case metricdata.Sum[int64]:
				addPoints(values, m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				addPoints(values, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				addPoints(values, m.Name, data.DataPoints)
			default:
				s.t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}

func addPoints[N int64 | float64](values map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		values[series(name, p.Attributes)] = float64(p.Value)
	}
}

func series(name string, labels attribute.Set) string {
	return strings.TrimSpace(name + " " + attributes(labels.ToSlice()))
}

func attributes(attrs []attribute.KeyValue) string {
	var parts []string
	for _, a := range attrs {
		parts = append(parts, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

// ended returns the ended spans with a name.
func (s *seen) ended(name string) []sdktrace.ReadOnlySpan {
	var found []sdktrace.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

func attributeOf(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

var ok = idem.Response{Status: 201, Body: []byte("ok")}

func answer(resp idem.Response, err error) func(pgx.Tx) (idem.Response, error) {
	return func(pgx.Tx) (idem.Response, error) { return resp, err }
}

var (
	hashA = idem.HashBytes([]byte("a"))
	hashB = idem.HashBytes([]byte("b"))
)
