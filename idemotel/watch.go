package idemotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/internal/vitals"
)

// Gauges show what is in the database, and how full a pool is, whenever metrics are collected.
type Gauges struct {
	pool         *pgxpool.Pool
	poolName     string
	every        time.Duration
	registration metric.Registration
	end          context.CancelFunc
	ended        context.Context
	readers      sync.WaitGroup

	mu      sync.Mutex
	figures vitals.Vitals
	readAt  time.Time     // of the figures
	reading chan struct{} // closed once the reading under way is over; nil if there is none
	begunAt time.Time     // of the reading
}

const (
	collectLimit = 500 * time.Millisecond // how long a reading is waited for by those who collect
	readLimit    = 5 * time.Second        // how long it may take to read them
	staleAfter   = 4                      // times every: then old figures are shown no more
)

// Watch registers gauges of the database and of the pool. They are read when metrics are collected, and no more often than
// WithEvery says. A collection does not wait long for them: if the pool is used up, or the server is slow, those of the pool are
// shown alone.
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
	meter := s.meters.Meter(instrumentation)
	instruments, err := newInstruments(meter)
	if err != nil {
		return nil, err
	}
	poolSet := newPoolSet(g.poolName)
	g.registration, err = meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		instruments.showPool(to, g.pool.Stat(), poolSet)
		if figures, ok := g.latest(ctx); ok {
			instruments.show(to, &figures)
		}
		return nil
	}, instruments.all...)
	if err != nil {
		g.end()
		return nil, err
	}
	return g, nil
}

// Stop takes the gauges away. It waits for a reading that is under way, which it cancels. The pool may be closed then.
func (g *Gauges) Stop() error {
	err := g.registration.Unregister()
	g.mu.Lock()
	g.end()
	g.mu.Unlock()
	g.readers.Wait()
	return err
}

// latest returns figures that are not too old, if there are any, and has them read anew when it is time.
func (g *Gauges) latest(ctx context.Context) (vitals.Vitals, bool) {
	if reading, patience := g.refresh(); patience > 0 {
		limit := time.NewTimer(patience)
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

// refresh begins to read, if it is time and no goroutine does. It returns what is closed once that is over, and for how long to wait
// for it: not at all if there is no reading, or one that has kept others waiting before.
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

// read reads the figures, unless another process is at it: then it is for the next collection to try again.
func (g *Gauges) read() {
	ctx, cancel := context.WithTimeout(g.ended, readLimit)
	defer cancel()
	figures, mine, err := vitals.ReadAlone(ctx, g.pool)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && mine {
		g.figures, g.readAt = figures, time.Now()
	}
	close(g.reading)
	g.reading = nil
}
