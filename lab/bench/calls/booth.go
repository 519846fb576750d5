// Package calls measures idem.Do and its alternatives. All of them execute a write in one Postgres
// database that must not happen twice.
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

// booth is a contestant, one of the compared implementations, that is ready to work on its own
// database. The database exists until the server is deleted.
type booth struct {
	contestant.Contestant
	runner.Cleanups
	do     contestant.Do
	server *runner.Server
	pool   *pgxpool.Pool
	proxy  *pgproxy.Proxy // nil if the connection to the server is direct
	redis  distance
}

// way describes the connections between a contestant and its server: latency, proxy and pool size.
type way struct {
	rtt     time.Duration
	counted bool // use a proxy, which counts round trips, even if rtt is zero
	conns   int
}

// open creates a database for the contestant c and opens c on this database.
func open(ctx context.Context, s *runner.Server, c contestant.Contestant, w way) (*booth, error) {
	b := &booth{Contestant: c, server: s, redis: distance{rtt: w.rtt}}
	if err := b.open(ctx, w); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *booth) open(ctx context.Context, w way) error {
	dsn, err := b.server.Database(ctx, contestant.Schema+b.Schema, schema.UpAt)
	if err != nil {
		return err
	}
	if w.rtt > 0 || w.counted {
		if b.proxy, err = pgproxy.New(dsn); err != nil {
			return err
		}
		b.Add(b.proxy.Close)
		b.proxy.SetLatency(w.rtt / 2)
		dsn = b.proxy.DSN()
	}
	if b.pool, err = runner.Pool(ctx, dsn, w.conns); err != nil {
		return err
	}
	b.Defer(b.pool.Close)
	b.do, err = b.Open(ctx, contestant.Place{Pool: b.pool, Cleanup: b.Defer, Redis: func(fsync string) (contestant.Redis, error) {
		address, err := b.server.Redis(ctx, fsync)
		return &redis.Options{Addr: address, Dialer: b.redis.dial, PoolSize: w.conns}, err
	}})
	return err
}

// seated returns a runner.Contestant called name that opens a booth for the contestant who.
// begin(ctx, booth) prepares the booth and returns the functions that measure it.
func seated(
	name string, who contestant.Contestant, w way, begin func(context.Context, *booth) (runner.Seat, error),
) runner.Contestant {
	return runner.Contestant{Name: name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		b, err := open(ctx, s, who, w)
		if err != nil {
			return runner.Seat{}, err
		}
		seat, err := begin(ctx, b)
		if err != nil {
			return runner.Seat{}, errors.Join(err, b.Close())
		}
		seat.Close = b.Close
		return seat, nil
	}}
}

// trips returns the number of round trips to Redis and Postgres since the last call of trips. Round
// trips to Postgres are counted only if the booth has a proxy.
func (b *booth) trips() int {
	trips := int(b.redis.trips.Swap(0))
	if b.proxy != nil {
		trips += b.proxy.ResetTally().Turns
	}
	return trips
}

// settle waits until a connection of the pool is free. If the pool has only one connection, the
// previous call has then finished all work that it does after its answer.
func (b *booth) settle(ctx context.Context) error {
	return b.pool.AcquireFunc(ctx, func(*pgxpool.Conn) error { return nil })
}

// size returns the size of the contestant's tables in bytes.
func (b *booth) size(ctx context.Context) (bytes float64, err error) {
	const query = "select sum(pg_total_relation_size(name::regclass))::float8 from unnest($1::text[]) name"
	err = b.pool.QueryRow(ctx, query, b.Tables).Scan(&bytes)
	return bytes, err
}

// sample is the result of one call of load.
type sample struct {
	runner.Sample
	replayed, refused int
}

// load makes calls from several simultaneous clients until the limit is reached. It counts the
// replays and refusals among the answers.
func (b *booth) load(ctx context.Context, source *source, clients int, limit runner.Limit) (sample, error) {
	next := make([]func() contestant.Call, clients)
	for i := range next {
		next[i] = source.client()
	}
	var replayed, refused atomic.Int64
	made, err := runner.Load(ctx, clients, limit, func(client int) func(context.Context) error {
		call := next[client]()
		return func(ctx context.Context) error {
			answer, err := b.do(ctx, call)
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

// distance delays each write to Redis by rtt, as the proxy delays Postgres. It also counts the
// writes, because each write of the client is one round trip to Redis.
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
		// time.Sleep is not precise enough: in an idle process, the timers of the Go runtime are up
		// to a millisecond late.
		ts := syscall.NsecToTimespec(int64(c.distance.rtt))
		_ = syscall.Nanosleep(&ts, nil)
	}
	return c.Conn.Write(b)
}
