package presence

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
)

// watched is the session of this process. Only short statements are sent on it: while the server
// executes a statement, it does not notice that its client has died.
type watched struct {
	*session.Session
	guard *guard
	busy  func() bool // reports whether operations are in progress in this process
	asked time.Time   // when a statement or a ping was last sent
}

const (
	pingPause = 5 * time.Second
	pingLimit = 5 * time.Second
)

// openSession opens a session that holds the lock on the number instance, which stands for this
// process. If instance is 0, the process gets a new number.
func openSession(ctx context.Context, pool *pgxpool.Pool, instance int) (*watched, error) {
	s, err := session.Open(ctx, pool, instance, func(instance int) session.Appearance { return &db.AppearInSession{Instance: instance} })
	if err != nil {
		return nil, err
	}
	keepAlive(s.Conn.PgConn().Conn())
	return &watched{Session: s, guard: newGuard(), asked: time.Now()}, nil
}

// keepAlive turns on TCP keepalive, so that the kernel notices if the server vanishes without
// closing the connection. An idle session need not send statements for this. The request
// AppearInSession turns on keepalive at the server.
func keepAlive(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // a TLS connection wraps the TCP connection
		conn = wrapped.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	}
}

// keep watches the connection until the connection is lost or done is closed.
func (s *watched) keep(done <-chan struct{}) (next visibility) {
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-done:
			cancel()
		case <-stop:
		}
	}()
	for {
		if err := s.waitForNotification(ctx); err != nil || ctx.Err() != nil {
			return nil
		}
		if err := s.act(ctx); err != nil {
			return nil
		}
	}
}

// waitForNotification waits for a notification, at most until act has to be called again. It also
// returns when ctx ends or the connection is lost. Nothing else ends the wait, because no other
// goroutine uses the connection.
func (s *watched) waitForNotification(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.guard.pause(pingPause))
	defer cancel()
	notification, err := s.Conn.WaitForNotification(bounded)
	if err == nil {
		s.guard.handleNotification(notification.Payload)
	}
	if err != nil && bounded.Err() != nil && pgconn.Timeout(err) && !s.Conn.IsClosed() {
		return nil
	}
	return err
}

// act does the work of a guard. If nothing was sent for some time, act pings the server.
func (s *watched) act(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	asked, err := s.guard.act(bounded, s.Session)
	if err != nil || asked {
		s.asked = time.Now()
		return err
	}
	quiet := pingPause
	if !s.busy() {
		quiet = max(pingPause, s.guard.idlePause(time.Second))
	}
	if time.Since(s.asked) < quiet {
		return nil
	}
	s.asked = time.Now()
	return s.Conn.Ping(bounded)
}
