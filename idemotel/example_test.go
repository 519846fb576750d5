package idemotel_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemotel"
	"github.com/idem-go/idem/lab/pgtest"
)

// The example needs a database, so go test does not run it as an example.
// TestExample_PrintsItsOutput runs it.
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
	for _, m := range all.ScopeMetrics[0].Metrics {
		if calls, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range calls.DataPoints {
				outcome, _ := p.Attributes.Value("idem.outcome")
				fmt.Println(m.Name, outcome.AsString(), p.Count)
			}
		}
	}
	// Prints:
	// idem.call.duration executed 1
	// idem.call.duration replayed 1
	// idem.replay.age  1
}

// The test is not parallel because the example sets the global provider and the test redirects
// standard output.
func TestExample_PrintsItsOutput(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(string(source), "\t// Prints:\n")
	said, _, _ = strings.Cut(said, "}\n")
	want := strings.ReplaceAll(said, "\t// ", "")

	pool = pgtest.New(t)
	stdout, provider := os.Stdout, otel.GetMeterProvider()
	defer func() { os.Stdout = stdout; otel.SetMeterProvider(provider) }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	Example()
	w.Close()
	got, err := io.ReadAll(r)
	if diff := cmp.Diff(lines(want), lines(string(got))); diff != "" || err != nil {
		t.Errorf("%v (-says +prints)\n%s", err, diff)
	}
}

// lines returns the sorted lines of a text, because metrics have no order.
func lines(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(text) {
		set[strings.TrimSpace(line)] = true
	}
	return set
}
