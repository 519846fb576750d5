package main

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// foreground calls Do at a steady rate, without waiting for the answers to earlier calls. Two
// thirds of the calls execute, one third are replays.
type foreground struct {
	pool *pgxpool.Pool
	rate int

	mu    sync.Mutex
	phase string
	took  map[string][]time.Duration // by phase, since the call was due
	err   error
}

func newForeground(ctx context.Context, dsn string, rate int) (*foreground, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = 20, 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return &foreground{pool: pool, rate: rate, took: map[string][]time.Duration{}}, err
}

// run makes calls until ctx ends.
func (f *foreground) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	begin := time.Now()
	key := ""
	for n := 0; ctx.Err() == nil; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(f.rate))
		time.Sleep(time.Until(due))
		if n%3 != 2 {
			key = rand.Text()
		}
		calls.Go(func() { f.call(due, key) })
	}
}

func (f *foreground) call(due time.Time, key string) {
	ctx := context.Background()
	_, err := idem.Do(ctx, f.pool, "foreground", key, idem.HashBytes(), func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "insert into business (what) values ('an order')")
		return idem.Response{Status: 201, Body: []byte(`{"order":1}`)}, err
	})
	took := time.Since(due)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took[f.phase] = append(f.took[f.phase], took)
	if err != nil {
		f.err = err
	}
}

// in starts a phase.
func (f *foreground) in(phase string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase = phase
}

// quantile returns a quantile of the latencies in a phase, and the number of its calls.
func (f *foreground) quantile(phase string, q float64) (time.Duration, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := slices.Sorted(slices.Values(f.took[phase]))
	if len(took) == 0 {
		return 0, 0
	}
	return took[int(q*float64(len(took)-1))], len(took)
}
