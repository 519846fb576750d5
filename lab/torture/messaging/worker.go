// Package messaging is the program of a worker process in a run of messages. It adds letters to the
// outbox together with other rows, relays them to the broker, and handles what the broker delivers.
// It knows nothing of the faults and does not judge. It logs what it did and which answers it got.
package messaging

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/unreliable"
	"github.com/idem-go/idem/outbox"
)

// office is the state of a worker process.
type office struct {
	*config.Config
	pools   []*pgxpool.Pool
	broker  broker.Client
	history *history.Writer
	numbers atomic.Uint32 // counts calls
	severed sync.Map      // letters for which an answer was lost
	calm    bool          // handlers fail only if the fate of a letter requires it
}

// next returns an identifier for a call.
func (o *office) next() history.Op { return o.Op(o.numbers.Add(1)) }

func (o *office) note(e letter.Event) {
	e.At = history.Now()
	o.history.Append(e)
}

const (
	shortestPause = 5 * time.Millisecond // backoff after a failure
	longestPause  = 100 * time.Millisecond
	patience      = 5 * time.Second // timeout of a publication
)

// relay runs the relay until ctx ends.
func (o *office) relay(ctx context.Context) error {
	config := outbox.RelayConfig{MaxAttempts: inquiry.MaxAttempts, MinPause: shortestPause, MaxPause: longestPause, PublishTimeout: patience}
	publisher, err := o.publisher()
	if err == nil {
		err = outbox.NewRelay(o.pools[0], publisher, config).Run(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Work writes, relays and handles letters until stop ends. With c.Finish it only finishes what other
// workers left.
func Work(stop context.Context, c *config.Config, writer *history.Writer) error {
	pools, err := c.Pools()
	if err != nil {
		return err
	}
	defer pools[0].Close()
	defer pools[1].Close()
	o := &office{Config: c, pools: pools, broker: broker.Client{Client: unreliable.NewClient(c.Broker, c.Slot)}, history: writer}
	if c.Finish > 0 {
		o.calm = true
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		// The leases of the workers would have to expire first.
		if _, err := pools[0].Exec(ctx, "DELETE FROM idem.leases"); err != nil {
			return err
		}
		return o.serve(ctx, func() error { return o.awaitEnd(ctx) })
	}
	return o.serve(stop, func() error { o.writeAll(stop); return nil })
}

// serve relays and handles letters while it calls work.
func (o *office) serve(ctx context.Context, work func() error) error {
	working, cancel := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- o.relay(working) }()
	var readers sync.WaitGroup
	if o.Quiet && !o.calm {
		readers.Go(func() { o.probe(working) })
	} else if !o.Direct {
		for _, consumer := range letter.Consumers() {
			readers.Go(func() { (&reader{o, consumer}).read(working) })
		}
	}
	err := work()
	cancel()
	readers.Wait()
	return errors.Join(err, <-relayed)
}

// writeAll adds letters to the outbox until stop ends.
func (o *office) writeAll(stop context.Context) {
	var writers sync.WaitGroup
	count, write := max(o.Goroutines/4, 1), o.write
	if o.Quiet {
		count, write = 1, o.takeTime
	}
	for range count {
		writers.Go(func() {
			if o.Quiet && o.Slot == 0 {
				o.begin()
			}
			for stop.Err() == nil {
				write()
			}
		})
	}
	writers.Wait()
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
