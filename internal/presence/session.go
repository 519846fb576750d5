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

// watched is the session of a process. The statements of a guard on it are short: during a statement the server does not notice that
// its client is gone.
type watched struct {
	*session.Session
	guard *guard
	busy  func() bool // whether operations are under way in this process
	asked time.Time   // when it was last known to answer
}

const (
	pingPause = 5 * time.Second
	pingLimit = 5 * time.Second
)

// openSession opens a session that shows an instance, a new one if it is 0.
func openSession(ctx context.Context, pool *pgxpool.Pool, instance int) (*watched, error) {
	s, err := session.Open(ctx, pool, instance, func(instance int) session.Appearance { return &db.AppearInSession{Instance: instance} })
	if err != nil {
		return nil, err
	}
	keepAlive(s.Conn.PgConn().Conn())
	return &watched{Session: s, guard: newGuard(), asked: time.Now()}, nil
}

// keepAlive has the kernel notice that the server is gone without a word, as AppearInSession has the server's notice: a session that is
// idle need not ask.
func keepAlive(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	}
}

// keep watches the connection until it is lost, or done is closed.
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
		if err := s.listen(ctx); err != nil || ctx.Err() != nil {
			return nil
		}
		if err := s.speak(ctx); err != nil {
			return nil
		}
	}
}

// listen waits for notifications until it is time to speak. Nothing else speaks on the connection, so that all it can hear
// besides is its end.
func (s *watched) listen(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.guard.pause(pingPause))
	defer cancel()
	told, err := s.Conn.WaitForNotification(bounded)
	if err == nil {
		s.guard.notified(told.Payload)
	}
	if err != nil && bounded.Err() != nil && pgconn.Timeout(err) && !s.Conn.IsClosed() {
		return nil
	}
	return err
}

// speak does the work of a guard, or pings the server.
func (s *watched) speak(ctx context.Context) error {
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
