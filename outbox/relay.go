package outbox

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/panics"
)

// Relay publishes the messages of an outbox through a Publisher. Run a Relay in every process. One
// process at a time relays each stream, and another takes over if that process ends.
type Relay struct {
	config     RelayConfig
	workers    []*worker // one for each stream
	background companion // the Publisher, if it has a background task
	err        error     // the error of an invalid argument, which Run returns
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

// Run relays until ctx is done. Then calls of the Publisher may continue for RelayConfig.Drain. Run
// stores their outcomes, and returns nil when all its goroutines have ended, except calls that do
// not return. The next relay publishes the messages of such a call again. It does the same with
// messages whose outcome could not be stored because the database was unavailable at the end. Run
// continues through outages of the database and of the broker. It returns an error only if the
// Relay can never work: its configuration is invalid, another relay has one of its topics, or the
// server lacks a feature.
//
// Run opens a connection for each stream that it relays, in addition to those of the pool. Behind a
// pooler in transaction mode it uses a connection of the pool for each transaction instead.
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
// used Add. It never blocks. Without Wake, the relay finds the messages within RelayConfig.Poll. An
// idem.Do whose function has called Add needs no Wake: its commit wakes the relays of the same
// process.
func (r *Relay) Wake() {
	for _, w := range r.workers {
		w.waker.wake()
	}
}
