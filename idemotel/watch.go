package idemotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/stats"
)

// Gauges exports figures of the database and of a pool whenever metrics are collected. Watch
// creates it.
type Gauges struct {
	pool         *pgxpool.Pool
	poolName     string
	every        time.Duration
	registration metric.Registration
	end          context.CancelFunc
	ended        context.Context
	readers      sync.WaitGroup

	mu      sync.Mutex
	figures stats.Stats
	readAt  time.Time     // the time at which figures were read
	reading chan struct{} // closed at the end of the current reading; nil if no reading is in progress
	begunAt time.Time     // the start of the current reading
}

const (
	collectLimit = 500 * time.Millisecond // how long a collection waits for a reading
	readLimit    = 5 * time.Second        // the timeout of a reading
	staleAfter   = 4                      // figures are exported until they are this many intervals old
)

// Watch registers gauges of the database and of the pool. Gauges.Stop unregisters them.
//
// The figures are read when metrics are collected, but not more often than WithEvery says. A
// collection waits for the reading only briefly, because the pool may be exhausted or the database
// slow. After that, the collection exports the figures of the pool, and the last figures of the
// database if they are not too old. Watch fails if pool is nil, if an option is invalid, or if the
// provider rejects an instrument.
func Watch(pool *pgxpool.Pool, opts ...Option) (*Gauges, error) {
	s, err := settle(opts)
	if err == nil && pool == nil {
		err = errors.New("idemotel: pool is nil")
	}
	if err != nil {
		return nil, err
	}
	g := &Gauges{pool: pool, poolName: s.pool, every: s.every}
	if g.poolName == "" {
		g.poolName = pool.Config().ConnConfig.Database
	}
	g.ended, g.end = context.WithCancel(context.Background())
	meter := s.meter()
	instruments, all, err := newInstruments(meter)
	if err != nil {
		return nil, err
	}
	g.registration, err = meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		c := collection{to, instruments}
		c.showPool(g.pool.Stat(), g.poolName)
		if figures, ok := g.latest(ctx); ok {
			c.show(&figures)
		}
		return nil
	}, all...)
	if err != nil {
		g.end()
		return nil, err
	}
	return g, nil
}

// Stop unregisters the gauges. It cancels a reading in progress and waits for its end. After Stop
// the pool may be closed.
func (g *Gauges) Stop() error {
	err := g.registration.Unregister()
	g.mu.Lock()
	g.end()
	g.mu.Unlock()
	g.readers.Wait()
	return err
}

// latest returns the last figures, and false if they are too old. If a new reading is due, latest
// starts it and waits for it briefly.
func (g *Gauges) latest(ctx context.Context) (stats.Stats, bool) {
	if reading, wait := g.refresh(); wait > 0 {
		limit := time.NewTimer(wait)
		defer limit.Stop()
		select {
		case <-reading:
		case <-limit.C:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.figures, !g.readAt.IsZero() && time.Since(g.readAt) < staleAfter*g.every
}

// refresh starts a reading if a reading is due and no reading is in progress. It returns a channel
// that is closed at the end of the current reading, and the time for which a collection may wait
// for it. The time is 0 or negative if no reading is in progress, or if collectLimit has passed.
func (g *Gauges) refresh() (<-chan struct{}, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading == nil && time.Since(g.readAt) >= g.every && g.ended.Err() == nil {
		g.reading, g.begunAt = make(chan struct{}), time.Now()
		g.readers.Go(g.read)
	}
	if g.reading == nil {
		return nil, 0
	}
	return g.reading, time.Until(g.begunAt.Add(collectLimit))
}

// read reads the figures of the database. If another process is reading figures of the same
// database, read gives up, and the next collection tries again.
func (g *Gauges) read() {
	ctx, cancel := context.WithTimeout(g.ended, readLimit)
	defer cancel()
	figures, ok, err := stats.TryRead(ctx, g.pool)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && ok {
		g.figures, g.readAt = figures, time.Now()
	}
	close(g.reading)
	g.reading = nil
}
