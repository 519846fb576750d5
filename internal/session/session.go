// Package session shows that a process is alive. A session is a connection outside the pool, in
// which the process holds an advisory lock on a number of its own. The server releases the lock
// when it notices that the process is gone. If the process was killed, the server notices this at
// once.
package session

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Session is a connection that has the advisory lock on the number Instance.
type Session struct {
	Conn     *pgx.Conn
	Instance int
}

// Appearance is the request that takes the lock of an instance and sets up the session. Holds
// reports whether the request has taken the lock.
type Appearance interface {
	txn.Request
	Holds() bool
}

var (
	errPooler = errors.New("a pooler is in front of the server")
	errLocked = errors.New("the number of this process is locked by another session")
)

// IsDenied reports whether an error of Open is permanent: a pooler gives the process no session of
// its own, or the server has no advisory locks.
func IsDenied(err error) bool {
	return errors.Is(err, errPooler) || errors.Is(err, txn.ErrUnsupported)
}

const dialLimit = 10 * time.Second

// Open connects to the database of pool, outside the pool. It sends the request that the function
// appearance returns, which takes the lock of the given instance. If instance is 0, Open takes a
// new number.
func Open(ctx context.Context, pool *pgxpool.Pool, instance int, appearance func(instance int) Appearance) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	config.ConnConfig.OnNotification = nil // the handler of the pool must not get the notifications of this session
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
		return errPooler // the lock would belong to a session of the pooler
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

// Query sends the requests in one round trip. After an error it closes the session.
func (s *Session) Query(ctx context.Context, requests ...txn.Request) error {
	err := txn.Ask(ctx, s.Conn, requests...)
	if err != nil {
		s.Close()
	}
	return err
}

// Close ends the session and so releases the lock.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Conn.Close(ctx)
}
