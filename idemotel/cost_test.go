package idemotel_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/lab/pgtest"
)

// dropping returns an observer for an SDK that drops everything: it samples no span and collects no
// metric.
func dropping(t testing.TB) idem.Observer {
	t.Helper()
	drop := sdkmetric.NewView(sdkmetric.Instrument{Name: "*"}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})
	o, err := idemotel.New(
		idemotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))),
		idemotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()), sdkmetric.WithView(drop))))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// caller makes calls of one kind.
type caller struct {
	pool *pgxpool.Pool
	opts []idem.Option
	n    int
}

func (c *caller) replay() {
	idem.Do(context.Background(), c.pool, "s", "key-of-some-length", hashA, answer(ok, nil), c.opts...)
}

func (c *caller) first() {
	c.n++
	idem.Do(context.Background(), c.pool, "s", fmt.Sprintf("key-of-some-length-%p-%08d", c, c.n), hashA, answer(ok, nil), c.opts...)
}

// The test is not parallel because it counts the allocations of the process.
func TestObserver_AllocatesLittle(t *testing.T) {
	const limit = 6
	pool := pgtest.New(t)
	name := idem.WithName("place-order")
	observed := &caller{pool: pool, opts: []idem.Option{name, idem.WithObserver(dropping(t))}}
	unobserved := &caller{pool: pool, opts: []idem.Option{name, idem.WithObserver(nil)}}
	for what, call := range map[string]func(*caller){"first run": (*caller).first, "replay": (*caller).replay} {
		// The goroutines of the pool allocate now and then. The minimum of several runs is that of
		// the call.
		more := []float64{}
		for range 5 {
			with := testing.AllocsPerRun(100, func() { call(observed) })
			without := testing.AllocsPerRun(100, func() { call(unobserved) })
			more = append(more, with-without)
		}
		slices.Sort(more)
		if t.Logf("%s: %v allocations more", what, more); more[0] > limit {
			t.Errorf("%s: an observed call makes %v allocations more, the limit is %d", what, more[0], limit)
		}
	}
}
