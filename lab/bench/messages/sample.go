package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/sidebyside"
)

// booth is one contestant at work on its database, with a broker of its own. It is opened for a sample and closed behind it, so that
// nobody polls in another's turn.
type booth struct {
	out.Runner
	pool    *pgxpool.Pool
	sink    *broker.Sink
	stop    func()
	relayed chan error // what Relay has returned
}

func openPool(ctx context.Context, dsn string, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, config)
}

// openBooth opens one that does not relay.
func openBooth(ctx context.Context, c out.Contestant, dsn string, conns int32) (*booth, error) {
	b := &booth{sink: broker.NewSink(), stop: func() {}}
	var err error
	if b.pool, err = openPool(ctx, dsn, conns); err != nil {
		return nil, err
	}
	if b.Runner, err = c.Open(out.Place{Pool: b.pool, Sink: b.sink}); err != nil {
		b.pool.Close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return b, nil
}

// relay starts its relay, if it has one.
func (b *booth) relay() {
	relayer, ok := b.Runner.(out.Relayer)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	b.relayed = make(chan error, 1)
	b.stop = stop
	go func() { b.relayed <- relayer.Relay(ctx) }()
}

// Close ends it.
func (b *booth) Close() error {
	defer b.pool.Close()
	b.stop()
	if b.relayed == nil {
		return nil
	}
	err := <-b.relayed
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// published waits until so many messages were published.
func (b *booth) published(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not all messages were published within two minutes"))
	defer cancel()
	return b.sink.Await(ctx, n)
}

// sample is what one contestant did in one go.
type sample struct {
	latencies []time.Duration // sorted
	committed map[string]time.Time
	elapsed   time.Duration
}

// takeSample places orders from some clients at once until the time is over, or each has placed so many.
func takeSample(ctx context.Context, r out.Runner, clients, customers int, limit time.Duration, orders int) (*sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &sample{committed: map[string]time.Time{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	begin := time.Now()
	for range clients {
		group.Go(func() {
			for n := 0; ctx.Err() == nil && (orders == 0 || n < orders) && (limit == 0 || time.Since(begin) < limit); n++ {
				order := out.NewOrder(1 + rand.N(customers))
				start := time.Now()
				if err := r.Place(ctx, order); err != nil {
					cancel(err)
					return
				}
				end := time.Now()
				mu.Lock()
				t.latencies, t.committed[order.ID] = append(t.latencies, end.Sub(start)), end
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.elapsed = time.Since(begin)
	slices.Sort(t.latencies)
	return t, context.Cause(ctx)
}

// fresh empties the tables of the business, and leaves nothing to vacuum.
func fresh(ctx context.Context, dsn string) error {
	if err := sidebyside.Execute(ctx, dsn, "truncate orders, entries"); err != nil {
		return err
	}
	return sidebyside.Execute(ctx, dsn, "vacuum analyze")
}

// told lists what is to be published, by customer and number.
func told(ctx context.Context, dsn string) ([]broker.Told, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `select "order"::text, customer, n from entries order by customer, n`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[broker.Told])
}

// audit compares what the broker has with what was committed, and fails unless nothing was lost or made up.
func (b *booth) audit(ctx context.Context, dsn string) (broker.Account, error) {
	committed, err := told(ctx, dsn)
	if err != nil {
		return broker.Account{}, err
	}
	a := b.sink.Audit(committed)
	if a.Lost+a.Phantoms > 0 {
		return a, fmt.Errorf("of %d messages %d were lost, and %d others published", a.Committed, a.Lost, a.Phantoms)
	}
	return a, nil
}

// closing closes the booth of a sample that has failed. If its relay has ended by itself, that is why.
func closing(b *booth, err error) error {
	if failed := b.Close(); failed != nil {
		return fmt.Errorf("%w; its relay: %w", err, failed)
	}
	return err
}
