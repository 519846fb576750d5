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
	share     store.Stream
	lanes     []int
	bell      bell
}

func newStream(pool *pgxpool.Pool, publisher Publisher, config *RelayConfig, number int) *stream {
	s := &stream{pool: pool, publisher: publisher, config: config, share: store.Stream{Number: number, Of: config.Streams}, bell: newBell()}
	for lane := number; lane < store.Lanes; lane += config.Streams {
		s.lanes = append(s.lanes, lane)
	}
	return s
}

// How long a relay that has no post waits before it looks for one again.
const (
	lookForPost = time.Second
	firstTrial  = 50 * time.Millisecond
	lastTrial   = 5 * time.Second
)

// run relays the stream whenever nobody else does, until ctx ends.
func (s *stream) run(ctx context.Context) {
	defer s.bell.hang()()
	trouble := txn.Pauses{Current: firstTrial, Limit: lastTrial}
	for ctx.Err() == nil {
		post, err := takePost(ctx, s.pool, s.lanes)
		if err == nil && post == nil {
			elsewhere := txn.Pauses{Current: 2 * lookForPost, Limit: 2 * lookForPost}
			_ = txn.Sleep(ctx, elsewhere.Next()-lookForPost/2)
			continue
		}
		began := time.Now()
		if err == nil {
			err = s.workAt(ctx, post)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastTrial {
			trouble.Current = firstTrial
		}
		pause := trouble.Next()
		s.config.Logger.WarnContext(ctx, "outbox: a relay goes on after a pause", "error", err, "pause", pause)
		_ = txn.Sleep(ctx, pause)
	}
}

func (s *stream) workAt(ctx context.Context, post *post) error {
	w := &worker{share: s.share, bell: s.bell, config: s.config, post: post}
	w.caller = caller{publisher: s.publisher, config: s.config, post: post, size: s.config.BatchSize}
	err := w.work(ctx)
	post.leave()
	if errors.Is(err, errHung) { // somebody else may go on, but not this process: there would be two of them
		select {
		case <-w.hung.ended:
		case <-ctx.Done():
		}
	}
	return err
}
