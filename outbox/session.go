package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// session is a connection that shows that this process is there by a lock on a number, and on which it works: whoever can still
// use it still has the lock.
type session struct {
	conn     *pgx.Conn
	instance int
}

var (
	errPooler = errors.New("a pooler is in front of the server")
	errLocked = errors.New("the number of this process is locked by somebody else")
)

const dialLimit = 10 * time.Second

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
	if config.AfterConnect != nil {
		err = config.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = s.appear(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) appear(ctx context.Context) error {
	number := store.NewInstance{}
	if err := s.Query(ctx, &number); err != nil {
		return err
	}
	if uint32(number.Backend) != s.conn.PgConn().PID() {
		return errPooler // a lock would stay with a session that is not ours
	}
	s.instance = number.Instance
	appeared := store.AppearAsRelay{Instance: number.Instance}
	if err := s.Query(ctx, &appeared); err != nil {
		return err
	}
	if !appeared.Held {
		return errLocked
	}
	return nil
}

// Query makes one round trip. After an error the session is over: what it was in the middle of is undone.
func (s *session) Query(ctx context.Context, requests ...txn.Request) error {
	trip := roundtrip.On(s.conn)
	for _, r := range requests {
		r.Queue(trip)
	}
	trip.Send(ctx)
	for _, r := range requests {
		r.Read(trip)
	}
	err := trip.End()
	if err != nil {
		s.close()
	}
	return err
}

func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
}
