package arena

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/pgproxy"
)

// Lane is the way to a server, direct or through a proxy that adds latency or only counts.
type Lane struct {
	Server *Server
	dsn    string
	pool   int32 // connections of each contestant
	proxy  *pgproxy.Proxy
	redis  distance
	booths []*Booth
}

// NewLane opens a way to the server. counted sends everything through a proxy even if there is no latency to add.
func NewLane(server *Server, rtt time.Duration, counted bool, pool int) (*Lane, error) {
	l := &Lane{Server: server, dsn: server.dsn, pool: int32(pool), redis: distance{rtt: rtt}}
	if rtt == 0 && !counted {
		return l, nil
	}
	proxy, err := pgproxy.New(server.dsn)
	if err != nil {
		return nil, err
	}
	proxy.SetLatency(rtt / 2)
	l.dsn, l.proxy = proxy.DSN(), proxy
	return l, nil
}

// Turns is how many round trips were made through the lane since it was last asked. Only a lane that counts knows those
// to Postgres.
func (l *Lane) Turns() int {
	roundTrips := int(l.redis.roundTrips.Swap(0))
	if l.proxy != nil {
		roundTrips += l.proxy.ResetTally().Turns
	}
	return roundTrips
}

// Booth returns the contestant's place on this lane, and opens it the first time.
func (l *Lane) Booth(ctx context.Context, c contestant.Contestant) (*Booth, error) {
	for _, b := range l.booths {
		if b.Contestant.Name == c.Name {
			return b, nil
		}
	}
	return l.Open(ctx, c)
}

// Open gives a contestant a database and a pool. All pools are alike. None pings a connection before it hands it out: a
// contestant would pay for that whenever the others had their turn for over a second.
func (l *Lane) Open(ctx context.Context, c contestant.Contestant) (*Booth, error) {
	name, err := l.Server.Create(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(database(l.dsn, name))
	if err != nil {
		return nil, err
	}
	config.MaxConns = l.pool
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	runner, err := c.Open(ctx, contestant.Place{Pool: pool, Redis: func(fsync string) (contestant.Redis, error) { return l.redisFor(ctx, fsync) }})
	if err != nil {
		pool.Close()
		return nil, err
	}
	b := &Booth{Contestant: c, Runner: runner, Pool: pool}
	l.booths = append(l.booths, b)
	return b, nil
}

// redisFor starts a Redis with this value of appendfsync, once for each server.
func (l *Lane) redisFor(ctx context.Context, fsync string) (contestant.Redis, error) {
	s := l.Server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redis[fsync] == nil {
		server, err := startRedis(ctx, s.dir, fsync, s.env)
		if err != nil {
			return nil, err
		}
		s.redis[fsync] = server
	}
	return &redis.Options{Addr: s.redis[fsync].address, Dialer: l.redis.dial, PoolSize: int(l.pool)}, nil
}

// Close closes what was opened on the lane. The databases go with the server.
func (l *Lane) Close() error {
	for _, b := range l.booths {
		b.Runner.Close()
		b.Pool.Close()
	}
	if l.proxy == nil {
		return nil
	}
	return l.proxy.Close()
}
