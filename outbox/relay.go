package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Relay hands what is in the outbox to a Publisher. Run one in every process: of each stream one works, and if that is gone
// another one goes on.
type Relay struct {
	pool      *pgxpool.Pool
	publisher Publisher
	config    RelayConfig
	streams   []*stream
	err       error
}

// NewRelay returns a Relay. What is wrong with its configuration, Run says.
func NewRelay(pool *pgxpool.Pool, publisher Publisher, config RelayConfig) *Relay {
	r := &Relay{pool: pool, publisher: publisher, config: config}
	r.err = r.config.set()
	switch {
	case pool == nil:
		r.err = errors.New("outbox: pool is nil")
	case publisher == nil:
		r.err = errors.New("outbox: publisher is nil")
	}
	for i := range r.config.Streams {
		r.streams = append(r.streams, newStream(r, i))
	}
	return r
}

// Run works until ctx ends, and returns nil once nothing of it is left. It goes on through outages of the database and of the
// broker. The messages that the Publisher has at the end of ctx are published again by whoever comes next, unless it answers
// within RelayConfig.Drain; no other is lost or doubled. The error of Run says that the Relay cannot work as it was made.
//
// It has a connection of its own beside those of the pool, for each stream that it works on. Behind a pooler in transaction
// mode, where none is to be had, it borrows one from the pool for each batch.
func (r *Relay) Run(ctx context.Context) error {
	if r.err != nil {
		return r.err
	}
	r.appear(1)
	defer r.appear(-1)
	var streams sync.WaitGroup
	for _, s := range r.streams {
		streams.Go(func() { s.run(ctx) })
	}
	streams.Wait()
	return nil
}
