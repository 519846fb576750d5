// Package messages measures packages outbox and inbox and their alternatives. One part saves orders
// and publishes a message about each of them. The other part consumes messages, each of which must
// have exactly one effect. The benchmark counts messages that are lost, doubled or out of order,
// also when processes are killed.
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
// is open only while it is measured, so that it does not poll while another contestant is measured.
type booth struct {
	out.Runner
	dsn     string
	pool    *pgxpool.Pool
	sink    *broker.Sink
	stop    func()
	relayed chan error // the result of Relay; nil if there is no relay

	committed atomic.Int64
}

// openBooth opens the contestant c on the database at dsn. It does not start the relay of c.
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

// relay starts the contestant's relay, which publishes messages in the background. It does nothing
// if the contestant has no relay.
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

// place calls Place and counts the orders that were committed.
func (b *booth) place(ctx context.Context, order out.Order) error {
	if err := b.Place(ctx, order); err != nil {
		return err
	}
	b.committed.Add(1)
	return nil
}

// load places orders of random customers from several simultaneous clients until the limit is
// reached.
func (b *booth) load(ctx context.Context, clients, customers int, limit runner.Limit) (runner.Sample, error) {
	return runner.Load(ctx, clients, limit, func(int) func(context.Context) error {
		order := out.NewOrder(1 + rand.N(customers))
		return func(ctx context.Context) error { return b.place(ctx, order) }
	})
}

// published waits until n distinct messages were published, for at most two minutes.
func (b *booth) published(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not all messages were published within two minutes"))
	defer cancel()
	return b.sink.Await(ctx, n)
}

// audit compares the published messages with the committed orders. It returns an error if a message
// was lost, or was published without a commit.
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

// expected returns the messages that must be published, one for each committed order. They are
// sorted by customer and by number within the customer.
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
