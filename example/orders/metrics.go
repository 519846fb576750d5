package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/idem-go/idem/idemotel"
)

// metrics serves GET /metrics for Prometheus. The metrics cover the calls of idem, the connection
// pool, and idem's tables. docs/operate has a dashboard and alerts for these metrics.
type metrics struct {
	observer *idemotel.Observer
	handler  http.Handler
	gauges   *idemotel.Gauges
	provider *metric.MeterProvider
}

func newMetrics(pool *pgxpool.Pool, opts ...idemotel.Option) (*metrics, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	m := &metrics{
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		provider: metric.NewMeterProvider(metric.WithReader(reader)),
	}
	opts = append(opts, idemotel.WithMeterProvider(m.provider), idemotel.WithPoolName("orders"))
	m.observer, err = idemotel.New(opts...)
	if err == nil {
		m.gauges, err = idemotel.Watch(pool, opts...)
	}
	return m, err
}

func (m *metrics) stop() error {
	return errors.Join(m.gauges.Stop(), m.provider.Shutdown(context.Background()))
}
