package operation

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// session is a connection on which this process does nothing but hold the lock on its number. The server gives the lock up as
// soon as it notices that the process is gone, which is at once if it was killed.
type session struct {
	conn     *pgx.Conn
	instance int
}

const (
	dialLimit = 10 * time.Second
	pingPause = 5 * time.Second
	pingLimit = 5 * time.Second
)

var (
	errPooler = errors.New("operation: a pooler is in front of the server")
	errLocked = errors.New("operation: the number of this process is locked by somebody else")
)

// openSession connects beside the pool, as the pool does.
func openSession(ctx context.Context, pool *pgxpool.Pool) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	if err := s.appear(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) appear(ctx context.Context) error {
	number := store.NewInstance{}
	if err := askOn(ctx, s.conn, &number); err != nil {
		return err
	}
	if uint32(number.Backend) != s.conn.PgConn().PID() {
		return errPooler // a lock would stay with a session that is not ours
	}
	s.instance = number.Instance
	appeared := store.AppearInSession{Instance: number.Instance}
	if err := askOn(ctx, s.conn, &appeared); err != nil {
		return err
	}
	if !appeared.Held {
		return errLocked
	}
	return nil
}

// askOn makes a round trip on a connection that belongs to no pool.
func askOn(ctx context.Context, conn *pgx.Conn, r txn.Request) error {
	trip := roundtrip.On(conn)
	r.Queue(trip)
	trip.Send(ctx)
	r.Read(trip)
	return trip.End()
}

// keep watches the connection until it is lost, or done is closed.
func (s *session) keep(done <-chan struct{}) {
	defer s.close()
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
			return
		}
		if err := s.ping(ctx); err != nil {
			return
		}
	}
}

// listen waits until it is time for a ping. Nobody speaks on the connection, so that all it can hear is its end.
func (s *session) listen(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, pingPause)
	defer cancel()
	_, err := s.conn.WaitForNotification(bounded)
	if err != nil && bounded.Err() != nil && pgconn.Timeout(err) && !s.conn.IsClosed() {
		return nil
	}
	return err
}

func (s *session) ping(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	return s.conn.Ping(bounded)
}

func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
}
