package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/panics"
)

// Relay hands what is in the outbox to a Publisher. Run one in every process: of each stream one works, and if that is gone
// another one goes on.
type Relay struct {
	config  RelayConfig
	streams []*stream
	beside  companion // or nil
	err     error
}

// NewRelay returns a Relay. What is wrong with its configuration, Run says.
func NewRelay(pool *pgxpool.Pool, publisher Publisher, config RelayConfig) *Relay {
	r := &Relay{config: config}
	r.err = r.config.set()
	switch {
	case pool == nil:
		r.err = errors.New("outbox: pool is nil")
	case publisher == nil:
		r.err = errors.New("outbox: publisher is nil")
	}
	r.beside, _ = publisher.(companion)
	memory := &memory{limit: r.config.MaxInHand}
	for i := range r.config.Streams {
		r.streams = append(r.streams, newStream(pool, publisher, &r.config, memory, i))
	}
	return r
}

// companion is a Publisher of this module that has something to do beside publishing: package direct handles redriven dead letters. A Relay
// calls RunBeside once in each process, when its Run begins.
type companion interface {
	Publisher
	RunBeside(ctx context.Context)
}

// Run works until ctx ends, and returns nil once nothing of it is left. It goes on through outages of the database and of the
// broker. The messages that the Publisher has at the end of ctx are published again by the next relay, unless it answers
// within RelayConfig.Drain; no other is lost or doubled. The error of Run says that the Relay cannot work as it was made.
//
// It has a connection of its own beside those of the pool, for each stream that it works on. Behind a pooler in transaction
// mode, where none is to be had, it borrows one from the pool for each batch.
func (r *Relay) Run(ctx context.Context) error {
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var streams sync.WaitGroup
	if r.beside != nil {
		streams.Go(func() {
			panics.Run(r.config.Logger, "outbox: RunBeside of the Publisher", func() { r.beside.RunBeside(ctx) })
		})
	}
	errs := make([]error, len(r.streams))
	for i, s := range r.streams {
		streams.Go(func() {
			if errs[i] = s.run(ctx); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	streams.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Wake tells the relay that there may be something to publish, so that it looks at once: call it after the commit of a
// transaction that has used Add. It costs next to nothing and never waits. Without it, the relay finds out by itself within
// RelayConfig.Poll. Inside of idem.Do it is not needed: relays of the same process are told when Do has committed.
func (r *Relay) Wake() {
	for _, s := range r.streams {
		s.waker.wake()
	}
}
