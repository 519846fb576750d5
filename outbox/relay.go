package outbox

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/txn"
)

// Relay publishes the messages of an outbox through a Publisher. Run one in every process: one
// process at a time relays each stream, and another takes over if the process ends.
type Relay struct {
	config     RelayConfig
	workers    []*worker // one for each stream
	background companion // or nil
	err        error     // of NewRelay
}

// NewRelay returns a Relay. If its arguments are invalid, Run returns the error.
func NewRelay(pool *pgxpool.Pool, publisher Publisher, config RelayConfig) *Relay {
	r := &Relay{config: config}
	r.err = r.config.set()
	switch {
	case pool == nil:
		r.err = errNoPool
	case publisher == nil:
		r.err = errors.New("outbox: publisher is nil")
	}
	r.background, _ = publisher.(companion)
	memory := &memory{limit: r.config.MaxInHand}
	for i := range r.config.Streams {
		r.workers = append(r.workers, newWorker(pool, publisher, &r.config, memory, i))
	}
	return r
}

// Run relays until ctx is done, and returns nil when all its goroutines have ended. It continues
// through outages of the database and of the broker. When ctx is done, the Publisher may still
// return within RelayConfig.Drain. If it does not, the next relay publishes the messages of the
// call again; no other message is lost or duplicated. Run returns an error only if the Relay can
// never work: its configuration is invalid, another relay has one of its topics, or the server
// lacks a feature.
//
// Run opens a connection for each stream that it relays, beside those of the pool. Behind a pooler
// in transaction mode it uses a connection of the pool for each transaction instead.
func (r *Relay) Run(ctx context.Context) error {
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tasks sync.WaitGroup
	if r.background != nil {
		tasks.Go(func() {
			panics.Run(r.config.Logger, "outbox: RunBeside of the Publisher", func() { r.background.RunBeside(ctx) })
		})
	}
	errs := make([]error, len(r.workers))
	for i, w := range r.workers {
		tasks.Go(func() {
			if errs[i] = w.run(ctx); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	tasks.Wait()
	return cmp.Or(errs...)
}

// Wake makes the relay read the outbox at once. Call it after the commit of a transaction that has
// used Add. It never blocks. Without it, the relay finds the messages within RelayConfig.Poll.
// After idem.Do it is not needed: its commit wakes the relays of the same process.
func (r *Relay) Wake() {
	for _, w := range r.workers {
		w.waker.wake()
	}
}

// run relays the stream while no other process does, until ctx is done. It returns an error only if
// retrying cannot help.
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
// returns nil if another process has the stream.
func (w *worker) acquire(ctx context.Context) (*ownership, *topics, error) {
	own, err := ownTopics(ctx, w.pool, w.config)
	if err != nil || own == nil {
		return nil, nil, err
	}
	ownership, err := takeOwnership(ctx, w.pool, w.config.Name, own.generation, w.lanes)
	return ownership, own, err
}

// waker wakes a stream. A wake never blocks.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wakers are the streams that run in this process. The commit of an idem.Do whose function has
// called Add wakes all of them.
var (
	wakersMu sync.Mutex
	wakers   = map[waker]bool{}
)

// listen adds the stream to wakers until end is called.
func (w waker) listen() (end func()) {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	wakers[w] = true
	return func() {
		wakersMu.Lock()
		defer wakersMu.Unlock()
		delete(wakers, w)
	}
}

// wakeAll is a hook for the commit of a transaction.
type wakeAll struct{}

// Committed wakes all streams of the process.
func (wakeAll) Committed() {
	wakersMu.Lock()
	defer wakersMu.Unlock()
	for w := range wakers {
		w.wake()
	}
}
