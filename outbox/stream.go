package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// stream is a part of the outbox: the lanes whose number has a remainder of its own.
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

// How long a relay that has no ownership waits before it looks for one again.
const (
	lookForPost = time.Second
	firstTrial  = 50 * time.Millisecond
	lastTrial   = 5 * time.Second
)

// run relays the stream whenever no other process does, until ctx ends. Its error says that it never will.
func (s *stream) run(ctx context.Context) error {
	defer s.waker.listen()()
	trouble := txn.Pauses{Current: firstTrial, Limit: lastTrial}
	for ctx.Err() == nil {
		s.worker.awaitHung(ctx)
		ownership, own, err := s.take(ctx)
		if errors.Is(err, ErrTopicTaken) {
			return err
		}
		if err == nil && ownership == nil {
			elsewhere := txn.Pauses{Current: 2 * lookForPost, Limit: 2 * lookForPost}
			_ = txn.Sleep(ctx, elsewhere.Next()-lookForPost/2)
			continue
		}
		began := time.Now()
		if err == nil {
			err = s.worker.work(ctx, ownership, own)
			ownership.leave()
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, txn.ErrUnsupported) {
			return err
		}
		if errors.Is(err, errTopics) {
			continue
		}
		if time.Since(began) > lastTrial {
			trouble.Current = firstTrial
		}
		pause := trouble.Next()
		s.config.Logger.WarnContext(ctx, "outbox: a relay goes on after a pause", "error", err, "pause", pause)
		_ = txn.Sleep(ctx, pause)
	}
	return nil
}

// take takes the ownership of the stream, and finds out which topics are the relay's.
func (s *stream) take(ctx context.Context) (*ownership, *topics, error) {
	own, err := ownTopics(ctx, s.pool, s.config)
	if err != nil || own == nil {
		return nil, nil, err
	}
	ownership, err := takeOwnership(ctx, s.pool, s.config.Name, own.generation, s.lanes)
	return ownership, own, err
}
