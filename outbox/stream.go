package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// stream is a part of the outbox: the lanes whose number has a remainder of its own.
type stream struct {
	pool      *pgxpool.Pool
	publisher Publisher
	config    *RelayConfig
	memory    *memory
	share     store.Stream
	lanes     []int
	waker     waker
}

func newStream(pool *pgxpool.Pool, publisher Publisher, config *RelayConfig, memory *memory, number int) *stream {
	s := &stream{pool: pool, publisher: publisher, config: config, memory: memory, share: store.Stream{Number: number, Of: config.Streams}, waker: newWaker()}
	for lane := number; lane < store.Lanes; lane += config.Streams {
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
		ownership, share, err := s.take(ctx)
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
			err = s.workAt(ctx, ownership, share)
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

// take takes the ownership of the stream, and finds out of which topics it is.
func (s *stream) take(ctx context.Context) (*ownership, store.Stream, error) {
	share := s.share
	own, err := ownTopics(ctx, s.pool, s.config)
	if err != nil || own == nil {
		return nil, share, err
	}
	share.Topics, share.Foreign = own.like, own.foreign
	ownership, err := takeOwnership(ctx, s.pool, s.config.Name, own.generation, s.lanes)
	return ownership, share, err
}

func (s *stream) workAt(ctx context.Context, ownership *ownership, share store.Stream) error {
	w := &worker{lookout: lookout{clerk: clerk{config: s.config, ownership: ownership}, share: share}, waker: s.waker}
	err := w.work(ctx, s.publisher, s.memory)
	ownership.leave()
	for _, hung := range w.stuck {
		s.await(ctx, hung)
	}
	return err
}

// await waits for a call that has not returned. Another process may go on meanwhile, but not this one: there would be two calls.
func (s *stream) await(ctx context.Context, hung *call) {
	for {
		s.config.Logger.Error("outbox: the Publisher has not returned although its context has ended: this process publishes nothing until it does, or is started again",
			"relay", s.config.Name)
		select {
		case <-hung.ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(signPause):
		}
	}
}
