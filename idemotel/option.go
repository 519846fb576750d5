package idemotel

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option changes where New and Watch tell what they see, and how often Watch looks.
type Option func(*settings)

type settings struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	every   time.Duration
	pool    string
	err     error
}

// DefaultEvery is how old the figures of the database may be.
const DefaultEvery = 30 * time.Second

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

// WithTracerProvider sets where spans go. The default, also in the place of nil, is the global provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(s *settings) {
		if provider != nil {
			s.tracers = provider
		}
	}
}

// WithMeterProvider sets where metrics go. The default, also in the place of nil, is the global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(s *settings) {
		if provider != nil {
			s.meters = provider
		}
	}
}

// WithEvery sets how old the figures of the database may be before they are read again, which is done when they are collected.
// Of the processes that watch one database, one reads at a time. To read takes some milliseconds, and no connection in
// between. The default is 30 seconds.
func WithEvery(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Second {
			s.err = fmt.Errorf("idemotel: WithEvery(%v): a second at least", d)
		}
		s.every = d
	}
}

// WithPoolName sets db.client.connection.pool.name, for programs with several pools. The default is the name of the database.
func WithPoolName(name string) Option {
	return func(s *settings) { s.pool = name }
}
