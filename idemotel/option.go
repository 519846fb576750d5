package idemotel

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const (
	instrumentation = "github.com/idem-go/idem/idemotel"

	// schemaURL is the version of the semantic conventions, which define the attributes without the
	// prefix "idem.".
	schemaURL = "https://opentelemetry.io/schemas/1.43.0"
)

// version returns the version of this module in the program, or "" if the version is unknown.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == instrumentation {
			return module.Version
		}
	}
	return ""
})

// Option configures New and Watch.
type Option func(*settings)

type settings struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	every   time.Duration
	pool    string
	err     error
}

// DefaultEvery is the default of WithEvery.
const DefaultEvery = 30 * time.Second

func (s *settings) meter() metric.Meter {
	return s.meters.Meter(instrumentation, metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(schemaURL))
}

func (s *settings) tracer() trace.Tracer {
	return s.tracers.Tracer(instrumentation, trace.WithInstrumentationVersion(version()), trace.WithSchemaURL(schemaURL))
}

// settle applies the options to the defaults.
func settle(opts []Option) (settings, error) {
	s := settings{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), every: DefaultEvery}
	for _, opt := range opts {
		if opt == nil {
			return s, fmt.Errorf("idemotel: nil Option")
		}
		opt(&s)
	}
	return s, s.err
}

// WithTracerProvider sets the provider for spans. The default, also for nil, is the global
// provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(s *settings) {
		if provider != nil {
			s.tracers = provider
		}
	}
}

// WithMeterProvider sets the provider for metrics. The default, also for nil, is the global
// provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(s *settings) {
		if provider != nil {
			s.meters = provider
		}
	}
}

// WithEvery sets the minimum interval between two readings of the database. A reading happens when
// metrics are collected and the last figures are older than d. Of all processes that watch one
// database, only one reads at a time. A reading takes some milliseconds. Between readings, no
// connection is in use. The default is 30 seconds. New and Watch fail if d is less than a second.
func WithEvery(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Second {
			s.err = fmt.Errorf("idemotel: WithEvery(%v): a second at least", d)
		}
		s.every = d
	}
}

// WithPoolName sets db.client.connection.pool.name, for programs with several pools. The default is
// the name of the database.
func WithPoolName(name string) Option {
	return func(s *settings) { s.pool = name }
}
