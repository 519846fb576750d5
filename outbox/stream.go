package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// run relays the stream, whenever no other process does, until ctx is done. It returns an error
// only if retrying cannot help.
func (w *worker) run(ctx context.Context) error {
	defer w.waker.listen()()
	backoff := txn.Pauses{Current: minRetryPause, Limit: maxRetryPause}
	for ctx.Err() == nil {
		w.awaitHung(ctx)
		ownership, own, err := w.acquire(ctx)
		if errors.Is(err, ErrTopicTaken) {
			return err
		}
		if err == nil && ownership == nil { // another process relays the stream
			_ = txn.Sleep(ctx, time.Second/2+rand.N(time.Second))
			continue
		}
		began := time.Now()
		if err == nil {
			err = w.work(ctx, ownership, own)
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
		w.config.Logger.WarnContext(ctx, "outbox: the relay has failed; retrying", "error", err, "pause", pause)
		_ = txn.Sleep(ctx, pause)
	}
	return nil
}

// acquire takes the ownership of the stream, and returns it with the topics of the relay. It
// returns a nil ownership if another process relays the stream.
func (w *worker) acquire(ctx context.Context) (*ownership, *topics, error) {
	own, err := ownTopics(ctx, w.pool, w.config)
	if err != nil || own == nil {
		return nil, nil, err
	}
	ownership, err := takeOwnership(ctx, w.pool, w.config.Name, own.generation, w.lanes)
	return ownership, own, err
}
