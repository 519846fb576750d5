package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// stream is a part of the outbox: the lanes whose number has a remainder of its own.
type stream struct {
	relay *Relay
	share store.Stream
	lanes []int
	wake  chan struct{}
	hung  *call // of the Publisher, which has not returned
}

func newStream(r *Relay, number int) *stream {
	s := &stream{relay: r, share: store.Stream{Number: number, Of: r.config.Streams}, wake: make(chan struct{}, 1)}
	for lane := number; lane < store.Lanes; lane += r.config.Streams {
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
	trouble := txn.Pauses{Current: firstTrial, Limit: lastTrial}
	for ctx.Err() == nil {
		post, err := takePost(ctx, s.relay.pool, s.lanes)
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
		s.relay.config.Logger.WarnContext(ctx, "outbox: a relay goes on after a pause", "error", err, "pause", pause)
		_ = txn.Sleep(ctx, pause)
	}
}

func (s *stream) workAt(ctx context.Context, post *post) error {
	w := &worker{stream: s, post: post, size: s.relay.config.BatchSize}
	err := w.work(ctx)
	post.leave()
	if errors.Is(err, errHung) { // somebody else may go on, but not this process: there would be two of them
		select {
		case <-s.hung.ended:
		case <-ctx.Done():
		}
	}
	return err
}
