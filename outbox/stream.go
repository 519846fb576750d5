package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// stream is a part of the outbox: the lanes whose number has the same remainder.
type stream struct {
	pool   *pgxpool.Pool
	config *RelayConfig
	lanes  []int
	waker  waker
	worker *worker
}

func newStream(pool *pgxpool.Pool, publisher Publisher, config *RelayConfig, memory *memory, number int) *stream {
	s := &stream{pool: pool, config: config, waker: newWaker()}
	s.worker = newWorker(publisher, config, memory, db.Stream{Number: number, Of: config.Streams}, s.waker)
	for lane := number; lane < db.Lanes; lane += config.Streams {
		s.lanes = append(s.lanes, lane)
	}
	return s
}

// run relays the stream while no other process does, until ctx is done. It returns an error only if
// retrying cannot help.
func (s *stream) run(ctx context.Context) error {
	defer s.waker.listen()()
	backoff := txn.Pauses{Current: minRetryPause, Limit: maxRetryPause}
	for ctx.Err() == nil {
		s.worker.awaitHung(ctx)
		ownership, own, err := s.take(ctx)
		if errors.Is(err, ErrTopicTaken) {
			return err
		}
		if err == nil && ownership == nil { // another process relays the stream
			random := txn.Pauses{Current: 2 * time.Second, Limit: 2 * time.Second}
			_ = txn.Sleep(ctx, random.Next()-time.Second/2)
			continue
		}
		began := time.Now()
		if err == nil {
			err = s.worker.work(ctx, ownership, own)
			ownership.release()
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.Is(err, txn.ErrUnsupported):
			return err
		case errors.Is(err, errTopics):
			continue
		case time.Since(began) > maxRetryPause:
			backoff.Current = minRetryPause
		}
		pause := backoff.Next()
		s.config.Logger.WarnContext(ctx, "outbox: the relay has failed; retrying", "error", err, "pause", pause)
		_ = txn.Sleep(ctx, pause)
	}
	return nil
}

// take takes the ownership of the stream, and returns it with the topics of the relay. It returns
// nil if another process has the stream.
func (s *stream) take(ctx context.Context) (*ownership, *topics, error) {
	own, err := ownTopics(ctx, s.pool, s.config)
	if err != nil || own == nil {
		return nil, nil, err
	}
	ownership, err := takeOwnership(ctx, s.pool, s.config.Name, own.generation, s.lanes)
	return ownership, own, err
}
