package idemotel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
)

// The example needs a database, so go test does not run it as an example: TestExample_PrintsItsOutput
// does.
var pool *pgxpool.Pool

func Example() {
	ctx := context.Background()
	reader := sdkmetric.NewManualReader() // or an exporter
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))

	observer, err := idemotel.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	gauges, err := idemotel.Watch(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gauges.Stop()

	for range 2 { // the second call is a retry
		_, err := idem.Do(ctx, pool, "tenant-1", "7f3c9a52-0d1e", idem.HashBytes([]byte("a teapot")),
			func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil },
			idem.WithName("place-order"), idem.WithObserver(observer))
		if err != nil {
			fmt.Println(err)
		}
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	var lines []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		if calls, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range calls.DataPoints {
				outcome, _ := p.Attributes.Value("idem.outcome")
				lines = append(lines, fmt.Sprintln(m.Name, outcome.AsString(), p.Count))
			}
		}
	}
	slices.Sort(lines)
	fmt.Print(strings.Join(lines, ""))
	// Prints:
	// idem.call.duration executed 1
	// idem.call.duration replayed 1
	// idem.replay.age  1
}

// The test is not parallel because the example sets the global provider, and because its output is
// redirected.
func TestExample_PrintsItsOutput(t *testing.T) {
	provider := otel.GetMeterProvider()
	defer otel.SetMeterProvider(provider)
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) { pool = pgtest.New(t) })
}
