package arena

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// distance makes a server that is asked one thing at a time look as far away as the proxy makes Postgres, and counts how
// often it is asked. It is for Redis, whose protocol the proxy does not speak: each write of the client is a question.
type distance struct {
	rtt        time.Duration
	roundTrips atomic.Int64
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
	c.distance.roundTrips.Add(1)
	if c.distance.rtt > 0 {
		// The runtime's own timers are a millisecond late when nothing else happens.
		ts := syscall.NsecToTimespec(int64(c.distance.rtt))
		_ = syscall.Nanosleep(&ts, nil)
	}
	return c.Conn.Write(b)
}
