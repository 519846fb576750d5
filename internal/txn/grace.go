package txn

import (
	"context"
	"net"
	"sync"
	"time"
)

// grace ends what is said on a socket when a context has ended and some time has passed since. It costs no goroutine as long
// as the context lives.
type grace struct {
	conn  net.Conn
	limit time.Duration
	stop  func() bool

	mu      sync.Mutex
	timer   *time.Timer
	begun   time.Time // zero: the context lives
	over    bool      // nothing is said any more
	ended   bool      // by this
	bounded bool      // the socket has a deadline for reading, set by bound
}

func newGrace(ctx context.Context, limit time.Duration, conn net.Conn) *grace {
	g := &grace{conn: conn, limit: limit}
	g.stop = context.AfterFunc(ctx, g.begin)
	return g
}

// startGrace returns one that has begun: the context has nothing to do with it.
func startGrace(limit time.Duration, conn net.Conn) *grace {
	g := &grace{conn: conn, limit: limit, stop: func() bool { return false }}
	g.begin()
	return g
}

func (g *grace) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		g.begun = time.Now()
		g.timer = time.AfterFunc(g.limit, g.interrupt)
	}
}

func (g *grace) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		g.ended = true
		_ = g.conn.SetDeadline(time.Unix(1, 0))
	}
}

// bound ends what waits for the socket to be read after d, also if the context lives. It takes back no interrupt.
func (g *grace) bound(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.bounded = g.conn.SetReadDeadline(time.Now().Add(d)) == nil
	}
}

// unbound clears the deadline of bound, unless an interrupt has replaced it.
func (g *grace) unbound() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bounded && !g.ended {
		_ = g.conn.SetReadDeadline(time.Time{})
	}
	g.bounded = false
}

// end clears the deadline of the socket, and reports whether the grace was over. It may be called more than once.
func (g *grace) end() bool {
	g.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	if (g.ended || g.bounded) && !g.over {
		_ = g.conn.SetDeadline(time.Time{})
	}
	g.over = true
	return g.ended
}

// left is how much of it is left.
func (g *grace) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun.IsZero() {
		return g.limit
	}
	return g.limit - time.Since(g.begun)
}
