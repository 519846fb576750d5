// Package session is a connection beside the pool on which a process shows that it is there, by a lock on its number. The server
// gives the lock up as soon as it notices that the process is gone, which is at once if it was killed.
package session

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// Session is a connection that holds the lock on Instance.
type Session struct {
	Conn     *pgx.Conn
	Instance int
}

// Appearance is the request that takes the lock, and settles what else is to be true of the session.
type Appearance interface {
	txn.Request
	Holds() bool
}

var (
	errPooler = errors.New("a pooler is in front of the server")
	errLocked = errors.New("the number of this process is locked by another session")
)

// IsDenied reports whether an error of Open is there to stay: no session of the server is this process's own, or it lacks the locks.
func IsDenied(err error) bool {
	return errors.Is(err, errPooler) || errors.Is(err, txn.ErrUnsupported)
}

const dialLimit = 10 * time.Second

// Open connects beside the pool, as the pool does. The session shows the instance, a new one if it is 0.
func Open(ctx context.Context, pool *pgxpool.Pool, instance int, appearance func(instance int) Appearance) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	config.ConnConfig.OnNotification = nil // that of the pool is for its own connections; what is told to this one waits to be read
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	s := &Session{Conn: conn, Instance: instance}
	if config.AfterConnect != nil {
		err = config.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = s.appear(ctx, appearance)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) appear(ctx context.Context, appearance func(instance int) Appearance) error {
	number := db.NewInstance{}
	if err := s.Query(ctx, &number); err != nil {
		return err
	}
	if uint32(number.Backend) != s.Conn.PgConn().PID() {
		return errPooler // a lock would stay with a session that is not ours
	}
	if s.Instance == 0 {
		s.Instance = number.Instance
	}
	appeared := appearance(s.Instance)
	if err := s.Query(ctx, appeared); err != nil {
		return err
	}
	if !appeared.Holds() {
		return errLocked
	}
	return nil
}

// Query makes one round trip. After an error the session is over: what it was in the middle of is undone.
func (s *Session) Query(ctx context.Context, requests ...txn.Request) error {
	trip := roundtrip.On(s.Conn)
	for _, r := range requests {
		r.Queue(trip)
	}
	trip.Send(ctx)
	for _, r := range requests {
		r.Read(trip)
	}
	err := trip.End()
	if err != nil {
		s.Close()
	}
	return txn.AsUnsupported(err)
}

// Close gives the lock up.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Conn.Close(ctx)
}
