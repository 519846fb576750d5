// Package calls measures idem.Do and its alternatives: a write in one database that must not happen
// twice.
package calls

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/schema"
)

// booth is a contestant that is ready to work on its own database.
type booth struct {
	contestant.Contestant
	runner contestant.Runner
	server *runner.Server
	pool   *pgxpool.Pool
	proxy  *pgproxy.Proxy // nil if the connection to the server is direct
	redis  distance
}

// way describes the connection between a contestant and its server.
type way struct {
	rtt     time.Duration
	counted bool // use a proxy to count round trips, even without added latency
	conns   int
}

// open creates a database for a contestant and opens the contestant on it.
func open(ctx context.Context, s *runner.Server, c contestant.Contestant, w way) (b *booth, err error) {
	dsn, err := s.Database(ctx, contestant.Schema, schema.UpAt)
	if err != nil {
		return nil, err
	}
	b = &booth{Contestant: c, server: s, redis: distance{rtt: w.rtt}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if w.rtt > 0 || w.counted {
		if b.proxy, err = pgproxy.New(dsn); err != nil {
			return nil, err
		}
		b.proxy.SetLatency(w.rtt / 2)
		dsn = b.proxy.DSN()
	}
	if b.pool, err = runner.Pool(ctx, dsn, w.conns); err != nil {
		return nil, err
	}
	b.runner, err = c.Open(ctx, contestant.Place{Pool: b.pool, Redis: func(fsync string) (contestant.Redis, error) {
		address, err := s.Redis(ctx, fsync)
		return &redis.Options{Addr: address, Dialer: b.redis.dial, PoolSize: w.conns}, err
	}})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Close closes the contestant, its pool and its proxy. The database is deleted with the server.
func (b *booth) Close() error {
	if b.runner != nil {
		b.runner.Close()
	}
	if b.pool != nil {
		b.pool.Close()
	}
	if b.proxy == nil {
		return nil
	}
	return b.proxy.Close()
}

// trips returns the number of round trips since the last call. Round trips to Postgres are counted
// only if the booth has a proxy.
func (b *booth) trips() int {
	trips := int(b.redis.trips.Swap(0))
	if b.proxy != nil {
		trips += b.proxy.ResetTally().Turns
	}
	return trips
}

// settle waits until a connection is free. If the pool has one connection, everything that a call
// does after its answer is then finished.
func (b *booth) settle(ctx context.Context) error {
	return b.pool.AcquireFunc(ctx, func(*pgxpool.Conn) error { return nil })
}

// size returns the size of the contestant's tables in bytes.
func (b *booth) size(ctx context.Context) (bytes float64, err error) {
	for _, table := range b.Tables {
		var size float64
		if err := b.pool.QueryRow(ctx, "select pg_total_relation_size($1::text::regclass)::float8", table).Scan(&size); err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// sample is the result of one load.
type sample struct {
	runner.Sample
	replayed, refused int
}

// load makes calls from several clients until the limit is reached, and counts replays and
// refusals.
func (b *booth) load(ctx context.Context, source *source, clients int, limit runner.Limit) (sample, error) {
	return load(ctx, b.runner, source, clients, limit)
}

func load(ctx context.Context, r contestant.Runner, source *source, clients int, limit runner.Limit) (sample, error) {
	next := make([]func() contestant.Call, clients)
	for i := range next {
		next[i] = source.client()
	}
	var replayed, refused atomic.Int64
	made, err := runner.Load(ctx, clients, limit, func(client int) func(context.Context) error {
		call := next[client]()
		return func(ctx context.Context) error {
			answer, err := r.Do(ctx, call)
			if answer.Replayed {
				replayed.Add(1)
			}
			if answer.Refused {
				refused.Add(1)
			}
			return err
		}
	})
	return sample{made, int(replayed.Load()), int(refused.Load())}, err
}

// distance adds the latency to Redis that the proxy adds to Postgres. It also counts the round
// trips to Redis: each write of the client is one.
type distance struct {
	rtt   time.Duration
	trips atomic.Int64
}

func (d *distance) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &distantConn{conn, d}, nil
}

type distantConn struct {
	net.Conn
	distance *distance
}

func (c *distantConn) Write(b []byte) (int, error) {
	c.distance.trips.Add(1)
	if c.distance.rtt > 0 {
		// The timers of the Go runtime are up to a millisecond late on an idle process.
		ts := syscall.NsecToTimespec(int64(c.distance.rtt))
		_ = syscall.Nanosleep(&ts, nil)
	}
	return c.Conn.Write(b)
}
