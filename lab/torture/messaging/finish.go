package messaging

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
)

// Finish relays and handles what is left after all workers have ended, until nothing is left or ctx
// ends. It deletes the leases of the workers first.
func Finish(ctx context.Context, c Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	if _, err := pools[0].Exec(ctx, "DELETE FROM idem.leases"); err != nil {
		return err
	}
	o := newOffice(&c, pools, writer)
	o.calm = true
	working, stop := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- o.relay(working) }()
	var readers sync.WaitGroup
	if !c.Direct {
		for _, consumer := range letter.Consumers() {
			readers.Go(func() { (&reader{o, consumer}).read(working) })
		}
	}
	err := o.awaitEnd(ctx)
	stop()
	readers.Wait()
	if relayed := <-relayed; err == nil {
		err = relayed
	}
	return err
}

// awaitEnd waits until the outbox is empty and all deliveries are acknowledged, or ctx ends.
func (o *office) awaitEnd(ctx context.Context) error {
	for ctx.Err() == nil {
		before, err := o.broker.Standing(ctx)
		var waiting int
		if err == nil {
			err = o.pools[1].QueryRow(ctx, "SELECT (SELECT count(*) FROM idem.outbox) + (SELECT count(*) FROM idem.delayed)").Scan(&waiting)
		}
		if err == nil && waiting == 0 && before.Pending == 0 {
			after, err := o.broker.Standing(ctx)
			if err == nil && after == before { // nothing was published in between
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
