// Package messages measures packages outbox and inbox and their alternatives. An order is saved and
// published, and a message must have exactly one effect. The benchmark counts lost and doubled
// messages and messages out of order, also when processes are killed.
package messages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/runner"
)

// booth is a publishing contestant that is ready to work on its database, with its own broker. It
// is opened for one turn and then closed, so that no contestant polls during the turn of another.
type booth struct {
	out.Runner
	dsn     string
	pool    *pgxpool.Pool
	sink    *broker.Sink
	stop    func()
	relayed chan error // the result of Relay; nil if there is no relay

	committed atomic.Int64
}

// openBooth opens a contestant. It does not start the relay.
func openBooth(ctx context.Context, c out.Contestant, dsn string, conns int) (b *booth, err error) {
	b = &booth{dsn: dsn, sink: broker.NewSink(), stop: func() {}}
	if b.pool, err = runner.Pool(ctx, dsn, conns); err != nil {
		return nil, err
	}
	if b.Runner, err = c.Open(out.Place{Pool: b.pool, Sink: b.sink}); err != nil {
		b.pool.Close()
		return nil, err
	}
	return b, nil
}

// relay starts the relay of the contestant, if there is one.
func (b *booth) relay() {
	relayer, ok := b.Runner.(out.Relayer)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	b.relayed, b.stop = make(chan error, 1), stop
	go func() { b.relayed <- relayer.Relay(ctx) }()
}

// Close stops the relay, closes the pool and returns the error of the relay.
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

// place places an order and counts it.
func (b *booth) place(ctx context.Context, order out.Order) error {
	if err := b.Place(ctx, order); err != nil {
		return err
	}
	b.committed.Add(1)
	return nil
}

// load places orders of random customers from several clients until the limit is reached.
func (b *booth) load(ctx context.Context, clients, customers int, limit runner.Limit) (runner.Sample, error) {
	return runner.Load(ctx, clients, limit, func(int) func(context.Context) error {
		order := out.NewOrder(1 + rand.N(customers))
		return func(ctx context.Context) error { return b.place(ctx, order) }
	})
}

// published waits until n messages were published.
func (b *booth) published(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not all messages were published within two minutes"))
	defer cancel()
	return b.sink.Await(ctx, n)
}

// audit compares the messages in the broker with the committed orders. It returns an error if a
// message was lost, or published without a commit.
func (b *booth) audit(ctx context.Context) (broker.Account, error) {
	committed, err := expected(ctx, b.dsn)
	if err != nil {
		return broker.Account{}, err
	}
	a := b.sink.Audit(committed)
	if a.Lost+a.Phantoms > 0 {
		return a, fmt.Errorf("of %d messages %d were lost, and %d others published", a.Committed, a.Lost, a.Phantoms)
	}
	return a, nil
}

// expected returns the committed messages, sorted by customer and number.
func expected(ctx context.Context, dsn string) ([]broker.Expected, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `select "order"::text, customer, n from entries order by customer, n`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[broker.Expected])
}
